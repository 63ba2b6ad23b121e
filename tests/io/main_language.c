/* Language models of Hugging Face's transformers: language.py makes small ones, Clef reads them, gives the same logits, finds the
   same beams and writes them back.  $CLEF_PYTHON names the interpreter (python3). */
#include "clef.h"
#include "support/io_files.h"
#include "support/plain.h"
#include "support/python.h"
#include <math.h>

static const char *const models[] = {"gpt2",       "gpt2_parts", "gpt2_untied", "gpt2_bf16", "llama",
                                     "llama_tied", "llama_bf16", "mistral",     "qwen2"};
enum { MODELS = sizeof models / sizeof *models, MOST = 3 * 40 * 67 };
static clef_context *ctx;
static char dir[512];
static int compared; /* greedy tokens */
static int ended;    /* beams that an end token ended */

static int run_python(const char *what) {
    char arguments[600];
    snprintf(arguments, sizeof arguments, "%s '%s'", what, dir);
    return python_run("io/language.py", arguments);
}

static clef_tensor *expected(const char *model, const char *what) {
    char name[200];
    snprintf(name, sizeof name, "%s/%s.npy", model, what);
    return clef_npy_read(ctx, io_path(dir, name));
}

/* Half types stay what they are in the files. */
static bool has_dtype_of(clef_module *net, const char *model) {
    clef_dtype want = strstr(model, "bf16") ? CLEF_BF16 : !strcmp(model, "qwen2") ? CLEF_F16 : CLEF_F32;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (clef_tensor_shape(t).rank == 2 && clef_tensor_dtype(t) != want) return false;
    }
    return true;
}

/* At most twice as far from the exact logits as PyTorch in float32. */
static void expect_logits(clef_module *net, const char *model) {
    static float y[MOST];
    static double want[MOST];
    double error = clef_item(expected(model, "error")), sum = 0;
    EXPECT(!clef_read(expected(model, "logits"), want, sizeof want));
    EXPECT(!clef_read(clef_forward(net, expected(model, "tokens")), y, sizeof y));
    for (int i = 0; i < MOST; i++) sum += (y[i] - want[i]) * (y[i] - want[i]);
    double mine = sqrt(sum / MOST);
    if (!(mine <= 2 * error)) fprintf(stderr, "%s: %g from the exact logits, PyTorch %g\n", model, mine, error);
    EXPECT(mine <= 2 * error);
}

/* The tokens that transformers takes after the first prompt, up to where the two best are close. */
static void expect_greedy(clef_module *net, const char *model) {
    enum { PROMPT = 5, TOKENS = 12 };
    int64_t tokens[3 * 40], want[TOKENS] = {-1}, token, n = PROMPT;
    const int64_t *prompt = tokens;
    EXPECT(!clef_read(expected(model, "tokens"), tokens, sizeof tokens));
    EXPECT(!clef_read(expected(model, "greedy"), want, sizeof want));
    clef_generator *g = clef_generator_new(net, NULL);
    EXPECT(g && !clef_generator_prompt(g, &prompt, &n));
    for (int i = 0; i < TOKENS && want[i] >= 0 && !io_failures; i++) {
        EXPECT(!clef_generator_sample(g, NULL, &token));
        if (token != want[i]) fprintf(stderr, "%s: token %d is %d, not %d\n", model, i, (int)token, (int)want[i]);
        EXPECT(token == want[i]);
        EXPECT(!clef_generator_feed(g, &token));
        compared++;
    }
    clef_generator_close(g);
}

/* The same results as transformers, up to where their scores are close to others. */
static void expect_beams(clef_module *net, const char *model, int penalty) {
    enum { PROMPTS = 2, BEAMS = 4, BEST = 3, PROMPT = 5, TOKENS = 12 };
    static const int64_t end[] = {1, 7, 30};
    int64_t tokens[3 * 40], want[PROMPTS * BEST * TOKENS], length[PROMPTS] = {PROMPT, PROMPT};
    const int64_t *prompt[PROMPTS] = {tokens, tokens + 40};
    double score[PROMPTS * BEST];
    clef_beam found[PROMPTS * BEST];
    char name[32], scores[32];
    snprintf(name, sizeof name, "beams_%d", penalty);
    snprintf(scores, sizeof scores, "beam_scores_%d", penalty);
    EXPECT(!clef_read(expected(model, "tokens"), tokens, sizeof tokens));
    EXPECT(!clef_read(expected(model, name), want, sizeof want) && !clef_read(expected(model, scores), score, sizeof score));
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.batch = PROMPTS * BEAMS});
    clef_beam_options o = {
        .beams = BEAMS, .tokens = TOKENS, .best = BEST, .length_penalty = penalty / 10.0, .end_token = end, .n_end_tokens = 3};
    EXPECT(g && !clef_generator_beams(g, prompt, length, &o, found));
    for (int i = 0; i < PROMPTS * BEST && !io_failures; i++) {
        int n = 0;
        while (n < TOKENS && want[i * TOKENS + n] >= 0) n++;
        bool same = found[i].n == n && fabs(found[i].score - score[i]) < 1e-4 * (1 + fabs(score[i]));
        for (int k = 0; k < n && same; k++) same = found[i].token[k] == want[i * TOKENS + k];
        if (!same)
            fprintf(stderr, "%s: beam %d with penalty %d has %d tokens and score %g, not %d and %g\n", model, i, penalty,
                    (int)found[i].n, found[i].score, n, score[i]);
        EXPECT(same);
        ended += found[i].ended;
    }
    clef_generator_close(g);
}

static void try_model(const char *model) {
    char saved[64];
    snprintf(saved, sizeof saved, "%s/saved", model);
    clef_module *net = clef_language_open(ctx, io_path(dir, model), NULL);
    if (!net) fprintf(stderr, "%s: %s\n", model, clef_error(ctx));
    EXPECT(net && has_dtype_of(net, model));
    if (!net) return;
    clef_set_training(net, false);
    clef_language_sizes s = clef_language_sizes_of(net);
    EXPECT(s.vocabulary == 67 && s.context == 40 && s.layers == 2 && s.width == 32 && s.n_end_tokens == 1 && s.end_token[0] == 1);
    expect_logits(net, model);
    expect_greedy(net, model);
    static const int penalties[] = {0, 10, -5, 20};
    for (int i = 0; i < 4; i++) expect_beams(net, model, penalties[i]);
    EXPECT(!clef_language_save(net, io_path(dir, saved)));
    clef_module *again = clef_language_open(ctx, io_path(dir, saved), &(clef_language_options){.f32 = true});
    EXPECT(again);
    if (again) clef_set_training(again, false), expect_logits(again, model);
}

/* ---- encoders ---- */
static const char *const encoders[] = {"bert", "bert_classes", "bert_bf16"};
enum { ENCODERS = sizeof encoders / sizeof *encoders, GRADIENT_MOST = 67 * 32 };

static clef_tensor *encode(clef_module *net, const char *model) {
    clef_tensor *in[] = {expected(model, "tokens"), expected(model, "lengths"), expected(model, "types")}, *y = NULL;
    EXPECT(!clef_call(net, in, 3, &y, 1));
    return y;
}

static void expect_classes(clef_module *net, const char *model) {
    float y[4 * 5];
    double want[4 * 5], error = clef_item(expected(model, "error")), sum = 0;
    int64_t n = clef_shape_numel(clef_tensor_shape(expected(model, "logits")));
    EXPECT(n <= 20 && !clef_read(expected(model, "logits"), want, sizeof want[0] * (size_t)n));
    EXPECT(!clef_read(encode(net, model), y, sizeof y[0] * (size_t)n));
    for (int64_t i = 0; i < n; i++) sum += (y[i] - want[i]) * (y[i] - want[i]);
    double mine = sqrt(sum / (double)n);
    if (!(mine <= 3 * error)) fprintf(stderr, "%s: %g from the exact logits, PyTorch %g\n", model, mine, error);
    EXPECT(mine <= 3 * error);
}

/* Of every parameter, within rounding of the largest of its elements. */
static void expect_gradients(clef_module *net, const char *model) {
    static float have[GRADIENT_MOST];
    static double want[GRADIENT_MOST];
    EXPECT(!clef_backward(clef_cross_entropy(encode(net, model), expected(model, "classes"), NULL)));
    for (int i = 0; i < clef_module_tensors(net) && !io_failures; i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        char name[160];
        snprintf(name, sizeof name, "grad.%s", t.name);
        size_t n = (size_t)clef_shape_numel(clef_tensor_shape(t.tensor));
        double largest = 1e-3, far = 0;
        EXPECT(n <= GRADIENT_MOST && !clef_read(expected(model, name), want, n * sizeof *want));
        EXPECT(!clef_read(clef_to(clef_grad_of(t.tensor), CLEF_F32), have, n * sizeof *have));
        for (size_t k = 0; k < n; k++) largest = fmax(largest, fabs(want[k])), far = fmax(far, fabs(want[k] - have[k]));
        if (!(far <= 1e-4 * largest)) fprintf(stderr, "%s: gradient of %s is %g away of %g\n", model, t.name, far, largest);
        EXPECT(far <= 1e-4 * largest);
    }
}

static void try_encoder(const char *model) {
    char saved[64];
    snprintf(saved, sizeof saved, "%s/saved", model);
    clef_module *net = clef_language_open(ctx, io_path(dir, model), NULL);
    if (!net) fprintf(stderr, "%s: %s\n", model, clef_error(ctx));
    EXPECT(net && has_dtype_of(net, model) && clef_language_sizes_of(net).vocabulary == 0);
    if (!net) return;
    clef_set_training(net, false);
    expect_classes(net, model);
    EXPECT(!clef_language_save(net, io_path(dir, saved)));
    clef_module *again = clef_language_open(ctx, io_path(dir, saved), &(clef_language_options){.f32 = true});
    EXPECT(again);
    if (again) expect_classes(again, model), expect_gradients(again, model);
}

int main(void) {
    if (!(ctx = clef_open(NULL))) return without_context();
    snprintf(dir, sizeof dir, "%s", io_scratch());
    int code = run_python("make");
    if (code == 127) printf("skipped: there is no Python\n"), code = 77;
    for (int i = 0; i < MODELS && code == 0; i++) try_model(models[i]);
    for (int i = 0; i < ENCODERS && code == 0; i++) try_encoder(encoders[i]);
    if (code == 0) EXPECT(compared >= 3 * MODELS && ended >= MODELS);
    if (io_failures) fprintf(stderr, "language: %s\n", clef_error(ctx));
    if (code == 0 && !io_failures) code = run_python("check");
    clef_close(ctx);
    io_remove(dir);
    return io_failures ? 1 : code;
}
