/* language_files.c — language models from directories, and into them. */
#include "language_config.h"
#include "runtime/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

char *clef__read_text_file(const char *path, size_t *size, clef__report *report) {
    enum { MOST = 64 << 20 };
    clef__reader reader;
    char *text = NULL;
    if (clef__reader_open(&reader, path, report) == CLEF_OK) {
        if (reader.size > MOST) clef__report_set(report, CLEF_FORMAT, "the file is larger than 64 MiB");
        else if (!(text = clef__calloc(1, (size_t)reader.size + 1)))
            clef__report_set(report, CLEF_MEMORY, "no memory for the file");
        else clef__reader_get(&reader, 0, text, reader.size, report);
        *size = (size_t)reader.size;
    }
    clef__reader_close(&reader);
    if (!report->status) return text;
    clef__free(text);
    return NULL;
}

/* What is opened: a directory with one file of weights or several, or a file. */
typedef struct opening {
    clef_context *ctx;
    const char *path;
    char *directory;
    char **shard; /* names of the files of weights, each once */
    int n_shards, shard_capacity;
    char failed_at[512]; /* the path that an error is about */
    clef__report report;
    clef_named_tensor *target;
    clef__fill *fill; /* of target i; source NULL: none yet */
    bool *filled;
    int n_targets;
} opening;

static char *beside(const char *directory, const char *name) { return clef__asprintf("%s/%s", directory, name); }

static bool exists(const char *path) {
    struct stat st;
    return path && stat(path, &st) == 0;
}

static void at(opening *o, const char *path) {
    if (!o->report.status) snprintf(o->failed_at, sizeof o->failed_at, "%s", path);
}

/* ---- which files ---- */
static bool add_shard(opening *o, const char *name) {
    for (int i = 0; i < o->n_shards; i++)
        if (!strcmp(o->shard[i], name)) return true;
    /* Names come from a file: they do not lead elsewhere. */
    if (!*name || strchr(name, '/') || strchr(name, '\\'))
        return !clef__report_set(&o->report, CLEF_FORMAT, "weight_map: \"%s\" is no file name", clef__quote(name).text);
    char *copy = clef__grow(&o->shard, o->n_shards, &o->shard_capacity, sizeof *o->shard) ? clef__strdup(name) : NULL;
    if (!copy) return !clef__report_set(&o->report, CLEF_MEMORY, "no memory for the names of files");
    o->shard[o->n_shards++] = copy;
    return true;
}

static void read_weight_map(opening *o, clef__json *json) {
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) {
        const char *file = clef__json_string(json);
        if (!file || !add_shard(o, file)) return;
    }
}

static void read_index(opening *o, const char *path) {
    size_t size;
    char *text = clef__read_text_file(path, &size, &o->report);
    if (!text) return;
    clef__json json = clef__json_of(text, size);
    clef__json_expect(&json, "{");
    for (const char *name; !o->report.status && (name = clef__json_member(&json));)
        if (!strcmp(name, "weight_map")) read_weight_map(o, &json);
        else clef__json_skip(&json);
    if (!o->report.status && (!clef__json_at_end(&json) || o->n_shards == 0))
        clef__report_set(&o->report, CLEF_FORMAT, "no index: a JSON object with a weight_map of file names is expected");
    clef__free(text);
}

static void find_files(opening *o) {
    struct stat st;
    at(o, o->path);
    if (stat(o->path, &st)) {
        clef__report_set(&o->report, CLEF_IO, "%s", strerror(errno));
        return;
    }
    const char *slash = strrchr(o->path, '/');
    if (S_ISDIR(st.st_mode)) o->directory = clef__strdup(o->path);
    else o->directory = slash ? clef__asprintf("%.*s", (int)(slash - o->path), o->path) : clef__strdup(".");
    const char *name = S_ISDIR(st.st_mode) ? "model.safetensors" : slash ? slash + 1 : o->path;
    char *single = o->directory ? beside(o->directory, name) : NULL;
    char *index = o->directory ? beside(o->directory, "model.safetensors.index.json") : NULL;
    if (!single || !index) clef__report_set(&o->report, CLEF_MEMORY, "no memory for a path");
    else if (exists(single)) add_shard(o, name);
    else if (exists(index)) at(o, index), read_index(o, index);
    else clef__report_set(&o->report, CLEF_IO, "there is neither model.safetensors nor model.safetensors.index.json");
    clef__free(single);
    clef__free(index);
}

/* ---- weights ---- */
/* Of GPT-2's names: those of its first files lack it, those that transformers writes have it before all but the head's. */
static const char prefix[] = "transformer.";

/* Names with and without the model's own prefix mean the same. */
static const char *plain_name(const char *name) {
    return strncmp(name, prefix, sizeof prefix - 1) ? name : name + sizeof prefix - 1;
}

/* What files hold besides weights: masks, frequencies, and a tied head once more. */
static bool is_no_weight(const char *name, const clef__language *lm) {
    return clef__ends_with(name, ".attn.bias") || clef__ends_with(name, ".attn.masked_bias") ||
           clef__ends_with(name, ".rotary_emb.inv_freq") || clef__ends_with(name, ".position_ids") ||
           (lm && lm->tied && !strcmp(name, "lm_head.weight"));
}

static int find_target(const opening *o, const char *name) {
    for (int i = 0; i < o->n_targets; i++)
        if (!strcmp(o->target[i].name, name)) return i;
    return -1;
}

static bool check_target(opening *o, int i, const clef__st_tensor *t) {
    clef_shape shape = clef_tensor_shape(o->target[i].tensor);
    if (clef_shape_equal(shape, t->shape) && clef__convertible(t->dtype, clef_tensor_dtype(o->target[i].tensor)) && !o->filled[i])
        return true;
    char have[96], want[96];
    clef__report_set(&o->report, CLEF_FORMAT, "tensor \"%s\" is %s %s; the model wants one %s", clef__quote(t->name).text,
                     clef_dtype_name(t->dtype), clef_shape_format(t->shape, have, sizeof have),
                     clef_shape_format(shape, want, sizeof want));
    return false;
}

/* Fills what is in one file. */
static void fill_from(opening *o, const clef__reader *reader, const clef__st_index *index, const clef__language *lm) {
    int n = 0;
    for (int i = 0; i < index->n; i++) {
        const clef__st_tensor *t = &index->tensor[i];
        const char *name = plain_name(t->name);
        int target = find_target(o, name);
        if (target < 0 && is_no_weight(name, lm)) continue;
        if (target < 0) {
            clef__report_set(&o->report, CLEF_FORMAT, "tensor \"%s\" is none of the model's", clef__quote(t->name).text);
            return;
        }
        if (!check_target(o, target, t)) return;
        o->filled[target] = true;
        o->fill[n++] = (clef__fill){.target = o->target[target].tensor, .source = t};
    }
    if (clef__stage(o->ctx, reader, index, o->fill, n, &o->report) == CLEF_OK) clef__assign_all(o->fill, n);
}

typedef void (*file_fn)(opening *o, const clef__reader *reader, const clef__st_index *index, void *user);
static void each_file(opening *o, file_fn fn, void *user) {
    for (int i = 0; i < o->n_shards && !o->report.status; i++) {
        char *path = beside(o->directory, o->shard[i]);
        clef__reader reader = {.fd = -1};
        clef__st_index index = {0};
        at(o, path ? path : o->path);
        if (!path) clef__report_set(&o->report, CLEF_MEMORY, "no memory for a path");
        else if (!clef__reader_open(&reader, path, &o->report) && !clef__st_parse(&reader, &index, &o->report))
            fn(o, &reader, &index, user);
        clef__st_free(&index);
        clef__reader_close(&reader);
        clef__free(path);
    }
}

static void load_file(opening *o, const clef__reader *reader, const clef__st_index *index, void *user) {
    if (clef__st_verify(reader, index, NULL, &o->report) == CLEF_OK) fill_from(o, reader, index, user);
}

/* The dtype of the first matrix. */
static void see_dtype(opening *o, const clef__reader *reader, const clef__st_index *index, void *user) {
    (void)o, (void)reader;
    clef_dtype *dtype = user;
    for (int i = 0; i < index->n && *dtype == CLEF_DTYPE_COUNT; i++)
        if (index->tensor[i].shape.rank == 2) *dtype = index->tensor[i].dtype;
}

static clef_dtype dtype_of_weights(opening *o, const clef_language_options *options) {
    clef_dtype dtype = CLEF_DTYPE_COUNT;
    if (options && options->f32) return CLEF_F32;
    if (options && options->half) return options->half;
    each_file(o, see_dtype, &dtype);
    return dtype == CLEF_F16 || dtype == CLEF_BF16 ? dtype : CLEF_F32;
}

/* ---- the model ---- */
static clef_module *make_of(clef_context *ctx, clef__language_made *made, clef_dtype dtype, double dropout) {
    switch (made->kind) {
    case CLEF__GPT: return made->gpt.dtype = dtype, made->gpt.dropout = dropout, clef_nn_gpt(ctx, &made->gpt);
    case CLEF__LLAMA: return made->llama.dtype = dtype, made->llama.dropout = dropout, clef_nn_llama(ctx, &made->llama);
    case CLEF__BERT: return made->bert.dtype = dtype, made->bert.dropout = dropout, clef_nn_bert(ctx, &made->bert);
    case CLEF__LSTM: return made->lstm.dropout = dropout, clef_nn_lstm_language(ctx, &made->lstm);
    }
    return NULL;
}

static clef_module *make_model(opening *o, const clef_language_options *options) {
    char *path = beside(o->directory, "config.json");
    size_t size;
    clef__language_config config;
    if (path) at(o, path);
    char *text = path ? clef__read_text_file(path, &size, &o->report) : NULL;
    if (text) clef__language_config_read(text, size, &config, &o->report);
    clef__free(text);
    clef__free(path);
    if (o->report.status) return NULL;
    if (options && options->half && config.made.kind == CLEF__LSTM)
        clef__report_set(&o->report, CLEF_UNSUPPORTED, "weights of an LSTM are f32, and cannot be %s",
                         clef_dtype_name(options->half));
    clef_dtype dtype = dtype_of_weights(o, options);
    if (o->report.status) return NULL;
    clef_module *net = make_of(o->ctx, &config.made, dtype, options ? options->dropout : 0);
    if (!net) return NULL;
    clef_language_sizes *sizes = &clef__language_of(net)->sizes;
    memcpy(sizes->end_token, config.end_token, sizeof config.end_token);
    sizes->n_end_tokens = config.n_end_tokens;
    return net;
}

static void load_weights(opening *o, clef_module *net) {
    o->target = clef__module_list(net, &o->n_targets);
    o->fill = clef__calloc((size_t)o->n_targets, sizeof *o->fill);
    o->filled = clef__calloc((size_t)o->n_targets, sizeof *o->filled);
    if (!o->target || !o->fill || !o->filled) {
        clef__report_set(&o->report, CLEF_MEMORY, "no memory for %d names", o->n_targets);
        return;
    }
    each_file(o, load_file, clef__language_of(net));
    if (!o->report.status) at(o, o->path);
    for (int i = 0; i < o->n_targets; i++)
        if (!o->filled[i]) clef__report_set(&o->report, CLEF_FORMAT, "tensor \"%s\" is missing", o->target[i].name);
}

static void end_opening(opening *o) {
    for (int i = 0; i < o->n_shards; i++) clef__free(o->shard[i]);
    clef__free(o->shard);
    clef__free(o->directory);
    clef__free(o->target);
    clef__free(o->fill);
    clef__free(o->filled);
}

static bool options_fit(clef_context *ctx, const clef_language_options *options) {
    clef_dtype half = options ? options->half : 0;
    if (half && half != CLEF_F16 && half != CLEF_BF16)
        return clef__fail(ctx, CLEF_INVALID, "language_open: half is %s; it is f16 or bf16", clef_dtype_name(half)), false;
    if (half && options->f32)
        return clef__fail(ctx, CLEF_INVALID, "language_open: weights cannot be f32 and %s", clef_dtype_name(half)), false;
    return true;
}

clef_module *clef_language_open(clef_context *ctx, const char *path, const clef_language_options *options) {
    if (!ctx) return NULL;
    if (!path) return clef__fail(ctx, CLEF_INVALID, "language_open: the path is NULL"), NULL;
    if (!options_fit(ctx, options)) return NULL;
    opening o = {.ctx = ctx, .path = path};
    find_files(&o);
    clef_module *net = o.report.status ? NULL : make_model(&o, options);
    if (net) load_weights(&o, net);
    if (o.report.status) clef__report_fail(ctx, "language_open", o.failed_at, &o.report);
    end_opening(&o);
    return o.report.status ? NULL : net;
}

/* ---- saving ---- */
static void write_config(const clef_module *net, const char *path, clef__report *report) {
    clef__text text = {0};
    clef__writer writer;
    clef__language_config_write(net, &text);
    if (text.failed) clef__report_set(report, CLEF_MEMORY, "no memory for its text");
    else if (clef__writer_open(&writer, path, report) == CLEF_OK) {
        if (clef__writer_put(&writer, text.data, text.length) == CLEF_OK) clef__writer_commit(&writer);
        clef__writer_abort(&writer);
    }
    clef__free(text.data);
}

static bool has_prefix(const clef_module *net, const char *name) {
    return clef__language_of(net)->made.kind == CLEF__GPT && strcmp(name, "lm_head.weight") != 0;
}

static void write_weights(const clef_module *net, const char *path, clef__report *report) {
    int n;
    clef_named_tensor *list = clef__module_list(net, &n);
    char **name = clef__calloc((size_t)n, sizeof *name);
    bool named = list && name;
    for (int i = 0; i < n && named; i++) {
        name[i] = clef__asprintf("%s%s", has_prefix(net, list[i].name) ? prefix : "", list[i].name);
        list[i].name = name[i];
        named = name[i];
    }
    if (named) clef__write_model(path, list, n, report);
    else clef__report_set(report, CLEF_MEMORY, "no memory for %d names", n);
    for (int i = 0; i < n && name; i++) clef__free(name[i]);
    clef__free(name);
    clef__free(list);
}

clef_status clef_language_save(clef_module *net, const char *directory) {
    if (!net) return CLEF_INVALID;
    clef_context *ctx = clef_module_context(net);
    if (!directory || !clef__language_of(net))
        return clef__fail(ctx, CLEF_INVALID, "language_save: %s",
                          directory ? "the module is no language model" : "the directory is NULL");
    if (mkdir(directory, 0777) && errno != EEXIST)
        return clef__fail(ctx, CLEF_IO, "language_save: %s: %s", directory, strerror(errno));
    char *config = beside(directory, "config.json"), *weights = beside(directory, "model.safetensors");
    clef__report report = {0};
    clef_status status = config && weights ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "language_save: no memory for a path");
    if (!status) write_weights(net, weights, &report); /* first: what may not fit on the disk leaves the older model whole */
    if (report.status) status = clef__report_fail(ctx, "language_save", weights, &report);
    if (!status) write_config(net, config, &report);
    if (!status && report.status) status = clef__report_fail(ctx, "language_save", config, &report);
    clef__free(config);
    clef__free(weights);
    return status;
}
