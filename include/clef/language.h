/* clef/language.h — language models: decoders that give, for every token of a sequence, scores of the token that follows.

   Tokens are whole numbers (i64, i32 or u8), [b,t]; logits are [b,t,vocabulary], where row i sees the tokens 0 … i and no other. */
#ifndef CLEF_LANGUAGE_H
#define CLEF_LANGUAGE_H
#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ----
   Zero fields mean GPT-2's smallest model, or Llama's defaults.  Weights start as N(0, 0.02²), those of projections into the residual
   stream as N(0, 0.02²/(2·layers)), biases as 0 and norms as 1.  dtype (f32, f16 or bf16) is that of the weights; sums and
   activations are f32.  CLEF_INVALID for sizes that are negative or do not fit: width a multiple of heads, heads a multiple of kv_heads,
   an even head for rotary positions.  CLEF_SHAPE in forward for tokens that are not [b,t], or more than `context` of them. */
typedef struct clef_gpt_options {
    int64_t vocabulary, context, layers, heads, width; /* 0: 50257, 1024, 12, 12, 768 */
    int64_t hidden;                                    /* width of the feed-forward layer; 0: 4·width */
    double dropout;                                    /* of embeddings, attention and both residual branches, in [0,1) */
    double eps;                                        /* of the norms; 0: 1e-5 */
    clef_dtype dtype;
    bool no_bias;    /* neither linear layers nor norms have a bias */
    bool untied;     /* the head has a weight of its own, lm_head.weight, not that of the token embedding */
    bool exact_gelu; /* x·Φ(x), not its tanh approximation */
} clef_gpt_options;
/* GPT-2: learned positions, layer norm before each branch, h = x + attn(ln_1(x)), y = h + mlp(ln_2(h)), ln_f, and the token embedding
   as head.  Tensors are named as in GPT-2's files ("h.0.attn.c_attn.weight"), their linear weights are [in,out].  Radford et al.,
   "Language models are unsupervised multitask learners", 2019.
       clef_module *net = clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128});  */
CLEF_API clef_module *clef_nn_gpt(clef_context *ctx, const clef_gpt_options *options);

typedef struct clef_llama_options {
    int64_t vocabulary, context, layers, heads, width; /* 0: 32000, 2048, 32, 32, 4096 */
    int64_t kv_heads;                                  /* heads of keys and values; 0: heads */
    int64_t head_width;                                /* 0: width/heads */
    int64_t hidden;      /* width of the feed-forward layer; 0: 8/3·width, rounded up to a multiple of 256 (of 32 below 256) */
    double rope_base;    /* 0: 10000 */
    double dropout, eps; /* eps 0: 1e-5 */
    clef_dtype dtype;
    bool tied;     /* the head is the token embedding */
    bool qkv_bias; /* queries, keys and values have a bias, as in Qwen2 */
} clef_llama_options;
/* Llama: rotary positions (halves paired), RMS norm before each branch, SwiGLU: down(silu(gate(x))·up(x)), no biases.  Tensors are named as
   Hugging Face does ("model.layers.0.self_attn.q_proj.weight"), linear weights are [out,in].  Touvron et al., "LLaMA: open and efficient
   foundation language models", 2023; fewer heads of keys and values: Ainslie et al., "GQA", 2023.
       clef_module *net = clef_nn_llama(ctx, &(clef_llama_options){.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128});  */
CLEF_API clef_module *clef_nn_llama(clef_context *ctx, const clef_llama_options *options);

typedef struct clef_lstm_language_options {
    int64_t vocabulary, context, layers, width; /* 0: 256, 64, 2, 256; width is that of the embedding and of the states */
    double dropout;                             /* of the embedding, between layers and before the head, in [0,1) */
} clef_lstm_language_options;
/* A recurrent model: embedding, LSTM layers, linear head; f32.  Tensors are named and begin as in PyTorch's example word_language_model
   ("encoder.weight", "rnn.weight_ih_l0", "decoder.bias").  Each sequence begins with states of 0.  Sundermeyer, Schlüter and Ney, "LSTM
   neural networks for language modeling", 2012.
       clef_module *net = clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = 65, .layers = 2, .width = 128});  */
CLEF_API clef_module *clef_nn_lstm_language(clef_context *ctx, const clef_lstm_language_options *options);

typedef struct clef_bert_options {
    int64_t vocabulary, context, layers, heads, width; /* 0: 30522, 512, 12, 12, 768 */
    int64_t hidden;                                    /* width of the feed-forward layer; 0: 4·width */
    int64_t types, classes;                            /* of tokens, and of texts; 0: 2 */
    double dropout;                                    /* of embeddings, attention, branches and the pooled row, in [0,1) */
    double eps;                                        /* of the norms; 0: 1e-12 */
    clef_dtype dtype;
    bool tanh_gelu; /* GELU's tanh approximation, not x·Φ(x) */
} clef_bert_options;
/* BERT as a classifier of texts: logits [b,classes] of tokens [b,t].  The sum of token, position and type embeddings, normed; layers
   h = norm(x + attn(x)), y = norm(h + mlp(h)) in which every token sees all; tanh of a linear layer of the first token's row, and a
   linear classifier.  clef_call takes tokens, lengths [b] (what stands behind them is seen by nobody) and types [b,t], both CLEF_NONE or
   left out: all are seen, and of type 0.  Tensors are named as in Hugging Face's BertForSequenceClassification
   ("bert.encoder.layer.0.attention.self.query.weight"), linear weights are [out,in]; all but norms and biases begin as N(0, 0.02²).
   It generates nothing: clef_language_sizes_of is 0.  Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2019.
       clef_call(net, (clef_tensor *[]){tokens, lengths}, 2, &logits, 1);  */
CLEF_API clef_module *clef_nn_bert(clef_context *ctx, const clef_bert_options *options);

enum { CLEF_END_TOKENS_MOST = 8 };
/* What a language model is; all zero for another module.  Recurrent ones have no heads. */
typedef struct clef_language_sizes {
    int64_t vocabulary, context, layers, heads, kv_heads, head_width, width;
    int64_t end_token[CLEF_END_TOKENS_MOST]; /* that end a text, as config.json says */
    int n_end_tokens;
} clef_language_sizes;
CLEF_API clef_language_sizes clef_language_sizes_of(const clef_module *net);

/* ---- model directories ----
   Of Hugging Face's layout: config.json, and model.safetensors or several files with model.safetensors.index.json.  Architectures: gpt2,
   llama, mistral and qwen2, bert with a classifier, and Clef's own clef_lstm (vocab_size, max_position_embeddings, num_hidden_layers,
   hidden_size); others, and settings that would change results and are not known, are CLEF_UNSUPPORTED with the setting's name.
   A file that is damaged, a tensor that is missing, unknown or of another shape is CLEF_FORMAT. */
typedef struct clef_language_options {
    double dropout;  /* for training on */
    bool f32;        /* weights become f32 */
    clef_dtype half; /* CLEF_F16 or CLEF_BF16: matrices become that, norms f32; neither: weights stay in the dtype of the files */
} clef_language_options;
/* The model of a directory, or of a .safetensors file with config.json beside it.  Options NULL: all defaults.  Numbers are rounded to the
   nearest; in half types a token reads half the memory.  CLEF_INVALID for another half, or with f32; CLEF_UNSUPPORTED for an LSTM's,
   whose weights are f32.
       clef_module *net = clef_language_open(ctx, "gpt2", &(clef_language_options){.half = CLEF_BF16});  */
CLEF_API clef_module *clef_language_open(clef_context *ctx, const char *path, const clef_language_options *options);
/* Writes config.json and model.safetensors, tensors named as transformers names them (GPT-2's behind "transformer."), into a directory,
   which is made if it is not there.  CLEF_INVALID for a module that is none of those above.
       clef_language_save(net, "shakespeare");  */
CLEF_API clef_status clef_language_save(clef_module *net, const char *directory);

/* ---- generating ----
   A generator saves keys and values of the tokens it has seen in a cache of fixed capacity, or a recurrent net's states, so that a further
   token costs one row.  Prompts are read in blocks of a power of two, of which each size has one plan, and tokens with another one:
   positions are numbers that move, so that from the third token on nothing is planned or compiled.  The same prompts, options and device
   give the same tokens.  A generator ends the context's step whenever it has read (clef_end_step): keep what is to outlive that.  Its memory
   lies where the model did when the generator was made; make another one for a model that has moved. */
typedef struct clef_generator clef_generator; /* owned by the net's context; freed with it, or by clef_generator_close */
typedef struct clef_generator_options {
    int64_t batch;    /* sequences at once; 0: 1 */
    int64_t capacity; /* tokens of each, prompt and answer; 0: the model's context, which is the most there can be */
    bool slide;       /* when a sequence is full, its older half is dropped and the rest is read again; else that is CLEF_STATE */
} clef_generator_options;
/* NULL and CLEF_INVALID for a module that is no language model, or options out of range; CLEF_UNSUPPORTED for a model that lies on several
   devices; CLEF_MEMORY.
       clef_generator *g = clef_generator_new(net, NULL);  */
CLEF_API clef_generator *clef_generator_new(clef_module *net, const clef_generator_options *options);
/* Frees it now; NULL is allowed. */
CLEF_API void clef_generator_close(clef_generator *g);
/* Begins anew with these prompts: prompt[i] has length[i] tokens, one for each sequence of the batch; they may be of different lengths.  CLEF_INVALID
   for an empty prompt, or a token that the model does not have; CLEF_STATE for one that is longer than the capacity without `slide`.
       clef_generator_prompt(g, (const int64_t *[]){ids}, &n);  */
CLEF_API clef_status clef_generator_prompt(clef_generator *g, const int64_t *const *prompt, const int64_t *length);
/* Reads one further token of each sequence. */
CLEF_API clef_status clef_generator_feed(clef_generator *g, const int64_t *token);
/* The logits [batch,vocabulary] of the token that comes next, the generator's own until it reads again; NULL before the first prompt,
   and after a call that failed in the midst of reading or reordering, until the next prompt (clef_generator_feed is CLEF_STATE then). */
CLEF_API const float *clef_generator_logits(const clef_generator *g);
/* Tokens of the longest sequence that the cache holds: those of the prompt and what followed it, but for what .slide has dropped. */
CLEF_API int64_t clef_generator_length(const clef_generator *g);
/* Sequence i goes on as sequence from[i] was: for a search that follows several. */
CLEF_API clef_status clef_generator_reorder(clef_generator *g, const int64_t *from);

/* How a token is chosen of its logits: they are penalised, divided by the temperature, and made probabilities; then the k largest of these stay,
   of them the smallest number whose sum is at least top_p, and of them those that are at least min_p times the largest. */
typedef struct clef_sampling {
    double temperature;    /* 0: the most probable token is taken */
    int64_t top_k;         /* 0: all */
    double top_p;          /* in [0,1]; 0: 1, all.  Holtzman et al., "The curious case of neural text degeneration", 2020 */
    double min_p;          /* in [0,1]; 0: all */
    double repeat_penalty; /* of tokens that the sequence has: positive logits are divided by it, others multiplied; 0: 1, none.
                              Keskar et al., "CTRL", 2019 */
    uint64_t seed;         /* what is drawn depends on it, the sequence's number, and how many tokens it has (Philox 4x32-10) */
} clef_sampling;
/* Chooses the next token of each sequence into token[0 … batch - 1], without reading it.  NULL: the most probable ones.  CLEF_INVALID for options out
   of range, and for logits that are NaN or +inf (-inf excludes a token; all cannot be); CLEF_STATE before the first prompt.
       for (clef_generator_prompt(g, &ids, &n); !clef_generator_sample(g, &how, &t) && t != end; clef_generator_feed(g, &t)) show(t);  */
CLEF_API clef_status clef_generator_sample(clef_generator *g, const clef_sampling *how, int64_t *token);

typedef struct clef_beam_options {
    int64_t beams;         /* continuations of each prompt that are followed; 0: the generator's batch, which is then one prompt */
    int64_t tokens;        /* to add at most; 0: as many as there is room for */
    int64_t best;          /* results of each prompt, at most beams; 0: 1 */
    double length_penalty; /* a result's score is Σ log p / its tokens^length_penalty, so that 1 is the mean; 0: the sum */
    const int64_t *end_token; /* that end a result; NULL: the model's own */
    int n_end_tokens;
    bool (*on_progress)(void *user, int64_t made,
                        int64_t tokens); /* after each token of at most so many; false: stop.  NULL: none */
    void *user;
} clef_beam_options;
typedef struct clef_beam {
    const int64_t *token; /* what follows the prompt; the generator's own, until it searches again */
    int64_t n;            /* so many; 0: there are fewer results than were asked for */
    double score;
    bool ended; /* by an end token, which is the last one */
} clef_beam;
/* Beam search: follows the likeliest continuations of batch/beams prompts until each has as many results as beams and none of those that
   are followed has a better score, or until `tokens` are there.  The best results of prompt i go into found[i·best …], best first; the score
   counts a result's end token, too.  What the generator has read then is what it followed; clef_generator_prompt begins anew.  CLEF_INVALID
   for options out of range, beams that do not divide the batch, or logits that are NaN or +inf; CLEF_STATE for more tokens than there is room for, without `slide`;
   CLEF_INTERRUPTED, with no results, if on_progress said so.
   Graves, "Sequence transduction with recurrent neural networks", 2012; length penalty: Wu et al., "Google's neural machine translation
   system", 2016, without its constant 5.
       clef_generator_beams(g, (const int64_t *[]){ids}, &n, &(clef_beam_options){.tokens = 20}, &found);  */
CLEF_API clef_status clef_generator_beams(clef_generator *g, const int64_t *const *prompt, const int64_t *length,
                                          const clef_beam_options *options, clef_beam *found);

#ifdef __cplusplus
}
#endif
#endif
