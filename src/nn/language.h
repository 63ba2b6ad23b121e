/* language.h — what language models share: their sizes, and keys and values of the tokens that came before.

   A model runs on whole sequences, or, while `past` is set, on the next tokens of sequences whose keys and values are saved.  All parts of
   a model point to the same clef__language, which is the root module's own. */
#ifndef CLEF_NN_LANGUAGE_H
#define CLEF_NN_LANGUAGE_H
#include "clef/language.h"

/* Column c of a cache is for the c-th token; item i's first token is in column start[i], as sequences of different lengths end in the
   same one.  A recurrent net (no heads) saves its states in place of keys and values, and each run is of tokens that all count or, for
   an item that starts later, all do not. */
typedef struct clef__past {
    clef_tensor **key,
        **value; /* n of them, kept: of each layer [b,kv_heads,capacity,head_width], or the states h and c [b,layers,width] */
    int64_t n, capacity;
    clef_tensor *position; /* one whole number: the column of the first token of this run; moves without a new plan */
    clef_tensor *start;    /* [b] i64; NULL: all 0 */
    clef_tensor *row;      /* one whole number: the token of this run whose logits are wanted */
} clef__past;

/* What a model was made of, defaults filled in. */
typedef struct clef__language_made {
    enum { CLEF__GPT, CLEF__LLAMA, CLEF__LSTM, CLEF__BERT } kind;
    union {
        clef_gpt_options gpt;
        clef_llama_options llama;
        clef_lstm_language_options lstm;
        clef_bert_options bert; /* which generates nothing */
    };
} clef__language_made;

typedef struct clef__language {
    clef__language_made made;
    clef_language_sizes sizes;
    double dropout;
    bool tied;
    const clef__past *past; /* NULL: whole sequences */
    /* Of the present run: */
    clef_tensor *positions; /* [t] or [b,t] i64: of each token, counted from its item's first */
    clef_tensor *offset;    /* [1] i32, while `past` is set: the position as attention takes it, one for all layers */
    clef_tensor *seen;      /* bool [b,1,1,capacity], where sequences start in different columns; else CLEF_NONE */
} clef__language;

/* The struct of a language model's root; NULL for other modules. */
clef__language *clef__language_of(const clef_module *net);
/* Logits [b,1,vocabulary] of row past->row, after the tokens [b,t] have gone into the cache. */
clef_tensor *clef__language_next(clef_module *net, clef_tensor *tokens, const clef__past *past);

/* ---- for models ---- */
/* The language of a part, which is the root's. */
typedef struct clef__part {
    clef__language *of;
    int64_t layer;
} clef__part;
/* Checks the tokens; false with a line. */
bool clef__language_takes(clef_module *net, const clef__language *lm, clef_tensor *tokens);
/* The same, and finds their positions. */
bool clef__language_begin(clef_module *net, clef__language *lm, clef_tensor *tokens);
/* Of x [b,t,width] the row that is wanted, or all of them. */
clef_tensor *clef__language_wanted(const clef__language *lm, clef_tensor *x);
/* Causal attention of q [b,heads,t,d] to k, v [b,kv_heads,t,d] and, while there is a past, to what is saved: [b,t,heads·d]. */
clef_tensor *clef__language_attend(const clef_module *part, clef_tensor *q, clef_tensor *k, clef_tensor *v);
/* x [b,t,heads·d] → [b,heads,t,d], and back. */
clef_tensor *clef__heads_apart(clef_tensor *x, int64_t heads);
/* The same of as many heads as x has: where ranks share a layer, some of them.  CLEF_SHAPE where they share a head. */
clef_tensor *clef__own_heads(const clef_module *part, clef_tensor *x, int64_t head_width);
clef_tensor *clef__heads_together(clef_tensor *x);
/* In training, x with dropout. */
clef_tensor *clef__language_drop(const clef_module *part, clef_tensor *x);
/* Logits of x [b,t,width] by the weight of the token embedding, or of the child "lm_head". */
clef_tensor *clef__language_head(clef_module *net, clef_module *embedding, clef_tensor *x);
/* Layers whose weights are of a language model's dtype and begin as N(0, std²); they are converted where they are used. */
typedef struct clef__projection {
    int64_t in, out;
    bool bias, transposed; /* transposed: the weight is [in,out] */
    int blocks;            /* as clef__layer has them */
    clef_dtype dtype;
    double std;
} clef__projection;
clef_module *clef__new_projection(clef_context *ctx, const clef__projection *options);
clef_module *clef__new_token_embedding(clef_context *ctx, int64_t entries, int64_t width, clef_dtype dtype);
/* clef_nn_layer_norm over the last dimension, with or without a bias. */
clef_module *clef__new_plain_norm(clef_context *ctx, int64_t width, double eps, bool bias);
enum { CLEF__LANGUAGE_LAYERS_MOST = 1024 };
/* The checks that are the same for all models; false with a line. */
bool clef__language_fits(clef_context *ctx, const char *type, const clef_language_sizes *sizes, double dropout, double eps,
                         clef_dtype dtype);
/* The root of a model: `made` is its struct of `bytes`, a clef__language first.  It has a forward or a call. */
clef_module *clef__new_language(clef_context *ctx, const char *type, clef_forward_fn forward, clef_call_fn call, const void *made,
                                size_t bytes);
/* The model that a part belongs to. */
clef__language *clef__language_of_part(const clef_module *part);
/* A child that knows its model, and one with a weight: NULL and false where the parent is NULL. */
clef_module *clef__add_model_part(clef_module *parent, const char *name, const char *type, clef_forward_fn forward,
                                  clef__part part);
bool clef__add_projection(clef_module *parent, const char *name, const clef__projection *options);
/* A child that is a clef_sequential of n layers "0", "1", …, each added by `add`. */
typedef bool (*clef__add_layer)(clef_module *layers, const char *name, clef__part part);
bool clef__add_layers(clef_module *parent, const char *name, clef__language *of, int64_t n, clef__add_layer add);
#endif
