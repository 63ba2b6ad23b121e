/* verb_generate.c — clef generate: text from a language model, as it comes. */
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct generate_options {
    common_options common;
    const char *model, *prompt, *stop;
    int64_t tokens, context, top_k, beams, best;
    double temperature, top_p, min_p, repeat_penalty, length_penalty;
    bool slide;
} generate_options;
static generate_options o = {.tokens = 256, .temperature = -1, .length_penalty = -1, .prompt = "\n"};

#define OPTIONS generate_options
static const arg args[] = {
    OPTION("model", ARG_TEXT, "DIR|FILE", model, "a directory with config.json and model.safetensors, or that file"),
    OPTION("prompt", ARG_TEXT, "TEXT", prompt, "what is to be continued; default: a line break"),
    OPTION("tokens", ARG_COUNT, "N", tokens, "how many to make at most; default 256"),
    OPTION("temperature", ARG_NUMBER, "X", temperature, "0: always the most probable; default 0.8"),
    OPTION("top-k", ARG_COUNT, "K", top_k, "choose among the K most probable; default: all"),
    OPTION("top-p", ARG_NUMBER, "P", top_p, "choose among the fewest that have probability P; default 1"),
    OPTION("min-p", ARG_NUMBER, "P", min_p, "choose among those of P times the largest probability; default 0"),
    OPTION("repeat-penalty", ARG_NUMBER, "X", repeat_penalty, "above 1: what was there before is less probable; default 1"),
    OPTION("beams", ARG_COUNT, "N", beams, "search: follow the N most probable texts, show the best one at the end"),
    OPTION("best", ARG_COUNT, "N", best, "of --beams: show the N best ones, each on its line"),
    OPTION("length-penalty", ARG_NUMBER, "X", length_penalty,
           "of --beams: texts are compared by log p / tokens^X, so that more favours longer ones; default 1"),
    OPTION("stop", ARG_TEXT, "TEXT", stop, "end before this text"),
    OPTION("context", ARG_COUNT, "N", context, "remember N tokens; default: as many as the model can"),
    OPTION("slide", ARG_FLAG, NULL, slide, "when these are full, forget the older half; else end there"),
    {"dtype", ARG_CHOICE, "f32|f16|bf16", offsetof(generate_options, common.dtype),
     "of the weights in memory, which a token reads; default: as in the files"},
    PRECISION_ARG,
    COMMON_ARGS};

static volatile int interrupted;

/* ---- text as it comes: nothing that may become the stop text ---- */
typedef struct stream {
    char *text; /* not shown yet */
    size_t length, capacity;
    bool stopped;
} stream;

static bool add(stream *s, const char *text, size_t n) {
    if (s->length + n + 1 > s->capacity) {
        char *grown = realloc(s->text, 2 * (s->length + n + 1));
        if (!grown) return false;
        s->text = grown, s->capacity = 2 * (s->length + n + 1);
    }
    memcpy(s->text + s->length, text, n);
    s->text[s->length += n] = 0;
    return true;
}

/* The longest end of the text that the stop text begins with. */
static size_t half_stop(const stream *s) {
    size_t n = o.stop ? strlen(o.stop) : 0;
    for (size_t back = n ? n - 1 : 0; back > 0; back--)
        if (back <= s->length && !memcmp(s->text + s->length - back, o.stop, back)) return back;
    return 0;
}

static void show(stream *s, bool last) {
    char *stop = o.stop ? strstr(s->text, o.stop) : NULL;
    s->stopped = stop;
    size_t n = stop ? (size_t)(stop - s->text) : s->length - (last ? 0 : half_stop(s));
    if (!o.common.json) {
        fwrite(s->text, 1, n, stdout), fflush(stdout);
        memmove(s->text, s->text + n, s->length - n + 1);
        s->length -= n;
    } else if (stop) *stop = 0;
}

/* ---- the run ---- */
typedef struct run {
    clef_context *ctx;
    clef_tokenizer *tokenizer;
    clef_generator *generator;
    clef_language_sizes sizes;
    clef_dtype dtype; /* of the model's matrices */
    stream stream;
    clef_text_stream held;
    int64_t made;
    double seconds;
} run;

static bool ends(const run *r, int64_t token) {
    for (int i = 0; i < r->sizes.n_end_tokens; i++)
        if (r->sizes.end_token[i] == token) return true;
    return false;
}

typedef clef_status (*prompt_fn)(run *r, const int64_t *ids, int64_t n);
static clef_status with_prompt(run *r, prompt_fn fn) {
    size_t length = strlen(o.prompt);
    int64_t *ids = malloc((length + 1) * sizeof *ids), n = 0;
    if (ids) n = clef_tokenizer_encode(r->tokenizer, o.prompt, length, ids, (int64_t)length);
    clef_status status = !ids ? CLEF_MEMORY : n >= 0 ? fn(r, ids, n) : clef_error_status(r->ctx);
    free(ids);
    return status;
}

/* Its text in whole characters; CLEF_STREAM_END: what is left of the last one. */
static clef_status add_token(run *r, int64_t token) {
    int64_t size = 16 + (token >= 0 ? clef_tokenizer_decode(r->tokenizer, &token, 1, NULL, 0) : 0);
    char *text = size >= 16 ? malloc(3 * (size_t)size) : NULL; /* a byte that is no character's takes three */
    int64_t n = text ? clef_tokenizer_stream(r->tokenizer, &r->held, token, text, 3 * (size_t)size) : -1;
    bool added = n >= 0 && add(&r->stream, text, (size_t)n);
    free(text);
    return added ? CLEF_OK : clef_error_status(r->ctx) ? clef_error_status(r->ctx) : CLEF_MEMORY;
}

static clef_status read_prompt(run *r, const int64_t *ids, int64_t n) { return clef_generator_prompt(r->generator, &ids, &n); }

static clef_status write_text(run *r) {
    double temperature = o.temperature < 0 ? 0.8 : o.temperature;
    clef_sampling how = {temperature, o.top_k, o.top_p, o.min_p, o.repeat_penalty, o.common.seed};
    clef_status status = with_prompt(r, read_prompt);
    double begun = tool_seconds();
    while (!status && r->made < o.tokens && !r->stream.stopped && !interrupted) {
        int64_t token, capacity = o.context ? o.context : r->sizes.context;
        status = clef_generator_sample(r->generator, &how, &token);
        if (status || ends(r, token)) break;
        if ((status = add_token(r, token))) break;
        show(&r->stream, false);
        r->made++;
        if (!o.slide && clef_generator_length(r->generator) == capacity) break;
        if (r->made < o.tokens && !r->stream.stopped) status = clef_generator_feed(r->generator, &token);
    }
    r->seconds = tool_seconds() - begun;
    return status || r->stream.stopped ? status : add_token(r, CLEF_STREAM_END);
}

/* ---- beam search: whole texts, best first ---- */
/* The text of one result, up to the stop text or its end token. */
static clef_status show_beam(run *r, const clef_beam *b, int64_t rank) {
    clef_status status = CLEF_OK;
    r->stream.length = 0, r->stream.stopped = false, r->held = (clef_text_stream){0};
    r->made += b->n;
    for (int64_t i = 0; i < b->n - b->ended && !status; i++) status = add_token(r, b->token[i]);
    if (!status) status = add_token(r, CLEF_STREAM_END);
    if (status) return status;
    if (rank > 0 && !o.common.json) putchar('\n');
    show(&r->stream, true);
    if (!o.common.json) return CLEF_OK;
    json j = json_begin(stdout);
    json_text(&j, "event", "beam");
    json_whole(&j, "rank", rank + 1);
    json_number(&j, "score", b->score);
    json_bool(&j, "ended", b->ended);
    json_text(&j, "text", r->stream.text);
    json_end(&j);
    return CLEF_OK;
}

static bool on_terminal(void) {
    const char *term = getenv("TERM");
    return !o.common.quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
}

static bool show_progress(void *user, int64_t made, int64_t tokens) {
    (void)user;
    if (on_terminal()) fprintf(stderr, "\r\033[K%lld of %lld tokens", (long long)made, (long long)tokens);
    return !interrupted;
}

static clef_status search_beams(run *r, const int64_t *ids, int64_t n) {
    int64_t capacity = o.context ? o.context : r->sizes.context, room = capacity - n + 1, best = o.best ? o.best : 1;
    clef_beam *found = calloc((size_t)best, sizeof *found);
    clef_beam_options how = {.beams = o.beams,
                             .best = best,
                             .tokens = !o.slide && n <= capacity && o.tokens > room ? room : o.tokens,
                             .length_penalty = o.length_penalty < 0 ? 1 : o.length_penalty,
                             .on_progress = show_progress};
    clef_status status = found ? clef_generator_beams(r->generator, &ids, &n, &how, found) : CLEF_MEMORY;
    if (on_terminal()) fputs("\r\033[K", stderr);
    for (int64_t i = 0; i < best && !status && found[i].n; i++) status = show_beam(r, &found[i], i);
    free(found);
    return status;
}

static clef_status write_beams(run *r) {
    double begun = tool_seconds();
    clef_status status = with_prompt(r, search_beams);
    r->seconds = tool_seconds() - begun;
    r->stream.length = 0; /* the beams' texts are told */
    if (r->stream.text) r->stream.text[0] = 0;
    return status;
}

static void report(run *r) {
    double speed = r->seconds > 0 ? (double)r->made / r->seconds : 0;
    if (r->stream.text && !r->stream.stopped) show(&r->stream, true);
    if (o.common.json) {
        json j = json_begin(stdout);
        json_text(&j, "event", "done");
        json_text(&j, "text", r->stream.text ? r->stream.text : "");
        json_whole(&j, "tokens", r->made);
        json_bool(&j, "stopped", r->stream.stopped);
        json_number(&j, "seconds", r->seconds);
        json_number(&j, "tokens_per_second", speed);
        json_text(&j, "dtype", clef_dtype_name(r->dtype));
        json_text(&j, "matmul_precision", tool_precision(r->ctx));
        json_end(&j);
        return;
    }
    putchar('\n');
    if (!o.common.quiet) tool_line(stderr, "%lld tokens, %.1f tokens/s", (long long)r->made, speed);
}

static clef_dtype dtype_of(clef_module *net) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (clef_tensor_shape(t).rank == 2) return clef_tensor_dtype(t);
    }
    return CLEF_F32;
}

static int generate_on(clef_context *ctx) {
    run r = {.ctx = ctx};
    bool f32 = o.common.dtype && !strcmp(o.common.dtype, "f32");
    clef_module *net = clef_language_open(ctx, o.model, &(clef_language_options){.f32 = f32, .half = tool_half(&o.common)});
    if (!net) return tool_failed("generate", ctx);
    r.sizes = clef_language_sizes_of(net);
    r.dtype = dtype_of(net);
    r.tokenizer = language_tokenizer("generate", ctx, o.model, r.sizes.vocabulary);
    if (!r.tokenizer) return EXIT_FAILED;
    r.generator = clef_generator_new(net, &(clef_generator_options){.batch = o.beams, .capacity = o.context, .slide = o.slide});
    clef_status status = !r.generator ? CLEF_INVALID : o.beams ? write_beams(&r) : write_text(&r);
    if (!status) report(&r);
    free(r.stream.text);
    return status ? tool_failed("generate", ctx) : EXIT_OK;
}

static const char *wrong_options(void) {
    bool chooses = o.temperature >= 0 || o.top_k || o.top_p > 0 || o.min_p > 0 || o.repeat_penalty > 0;
    if (!o.model) return "--model DIR is missing; see clef generate --help";
    if (o.top_p > 1 || o.min_p > 1) return "--top-p and --min-p want a number from 0 to 1";
    if (!o.beams && (o.best || o.length_penalty >= 0)) return "--best and --length-penalty belong to --beams";
    if (o.beams && chooses)
        return "--beams chooses nothing by chance; --temperature, --top-k, --top-p, --min-p and --repeat-penalty do not go with it";
    if (o.beams > 4096) return "--beams wants a number from 1 to 4096";
    return o.best > o.beams ? "--best wants a number that is not above --beams" : NULL;
}

static int generate(const char *const *operands) {
    (void)operands;
    int code = EXIT_OK;
    const char *wrong = wrong_options();
    if (wrong) return tool_usage("generate", "%s", wrong);
    tool_catch_signals(&interrupted);
    clef_context *ctx = tool_open("generate", &o.common, &code);
    if (!ctx) return code;
    code = generate_on(ctx);
    clef_close(ctx);
    return code;
}

const verb verb_generate = {"generate", NULL, "Continue a text by a language model.", args, &o, generate};
