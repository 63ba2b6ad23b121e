/* checkpoint.c — training state as one safetensors file.

   Tensors: "model." + name, "optimizer." + name.  Everything else is metadata, as text that comes back bit for bit
   (clef__exact, clef__decimal): see the tables below.  "clef.checkpoint" marks the file and holds the format's
   number. Loading checks and uploads everything before it changes anything. */
#include "io_internal.h"
#include <string.h>

const char clef__checkpoint_key[] = "clef.checkpoint";
static const char format_number[] = "1";

/* All numbers of a checkpoint.  `present`: which parts the file or the caller has. */
typedef struct state {
    bool optimizer_present, schedule_present, loader_present;
    clef_optimizer_state optimizer;
    clef_schedule_state schedule;
    clef_loader_state loader;
    clef_random_state random;
    int64_t epoch;
    double metric;
} state;

typedef enum part { ALWAYS, OPTIMIZER, SCHEDULE, LOADER } part;
typedef enum kind { WHOLE, COUNT, REAL } kind; /* int64_t, uint64_t, double */

static const struct field {
    const char *key;
    part part;
    kind kind;
    size_t offset;
} fields[] = {
    {"epoch", ALWAYS, WHOLE, offsetof(state, epoch)},
    {"metric", ALWAYS, REAL, offsetof(state, metric)},
    {"random.seed", ALWAYS, COUNT, offsetof(state, random.seed)},
    {"random.offset", ALWAYS, COUNT, offsetof(state, random.offset)},
    {"optimizer.steps", OPTIMIZER, WHOLE, offsetof(state, optimizer.steps)},
    {"optimizer.lr", OPTIMIZER, REAL, offsetof(state, optimizer.lr)},
    {"schedule.ticks", SCHEDULE, WHOLE, offsetof(state, schedule.ticks)},
    {"schedule.bad", SCHEDULE, WHOLE, offsetof(state, schedule.bad)},
    {"schedule.best", SCHEDULE, REAL, offsetof(state, schedule.best)},
    {"schedule.lr", SCHEDULE, REAL, offsetof(state, schedule.lr)},
    {"loader.epoch", LOADER, WHOLE, offsetof(state, loader.epoch)},
    {"loader.batch", LOADER, WHOLE, offsetof(state, loader.batch)},
    {"loader.seed", LOADER, COUNT, offsetof(state, loader.seed)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool has_part(const state *s, part which) {
    return which == ALWAYS || (which == OPTIMIZER && s->optimizer_present) ||
           (which == SCHEDULE && s->schedule_present) || (which == LOADER && s->loader_present);
}

static clef__number format_field(const state *s, const struct field *field) {
    const char *at = (const char *)s + field->offset;
    if (field->kind == REAL) return clef__exact(*(const double *)at);
    if (field->kind == WHOLE) return clef__decimal(*(const int64_t *)at);
    return clef__unsigned(*(const uint64_t *)at);
}

static bool parse_field(state *s, const struct field *field, const char *text) {
    char *at = (char *)s + field->offset;
    if (field->kind == REAL) return clef__parse_exact(text, (double *)at);
    if (field->kind == WHOLE) return clef__parse_decimal(text, (int64_t *)at);
    return clef__parse_unsigned(text, (uint64_t *)at);
}

/* ---- the tensors of model and optimizer in one list ---- */
typedef struct roster {
    clef_named_tensor *entry; /* first those of the model */
    int models, n;
} roster;

static bool make_roster(roster *r, const clef_checkpoint *what, clef__report *report) {
    *r = (roster){.models = what->module ? clef_module_tensors(what->module) : 0};
    r->n = r->models + (what->optimizer ? clef_optimizer_tensors(what->optimizer) : 0);
    r->entry = clef__calloc((size_t)r->n, sizeof *r->entry);
    if (!r->entry) return clef__report_set(report, CLEF_MEMORY, "no memory for %d names", r->n), false;
    for (int i = 0; i < r->n; i++) {
        r->entry[i] = i < r->models ? clef_module_tensor(what->module, i)
                                    : clef_optimizer_tensor(what->optimizer, i - r->models);
        if (!r->entry[i].name || !r->entry[i].tensor)
            return clef__report_set(report, CLEF_STATE, "tensor %d of model and optimizer is not to be had", i),
                   false;
    }
    return true;
}

/* ---- saving ---- */
static void free_names(char **names, int n) {
    for (int i = 0; names && i < n; i++) clef__free(names[i]);
    clef__free(names);
}

static void write_roster(const char *path, roster *r, const char *const *metadata, clef__report *report) {
    char **names = clef__calloc((size_t)r->n, sizeof *names);
    bool named = names != NULL;
    for (int i = 0; named && i < r->n; i++) {
        names[i] = clef__format("%s%s", i < r->models ? "model." : "optimizer.", r->entry[i].name);
        r->entry[i].name = names[i];
        named = names[i] != NULL;
    }
    if (named) clef__write_tensors(path, r->entry, r->n, metadata, report);
    else clef__report_set(report, CLEF_MEMORY, "no memory for %d names", r->n);
    free_names(names, r->n);
}

/* A note may hold anything, such as the bytes of a file's name; what is not UTF-8 becomes '?'. */
static bool clean_note(const char *note, char *out, size_t size, clef__report *report) {
    if (strlen(note) >= size)
        return clef__report_set(report, CLEF_INVALID, "the note has %zu bytes; at most %zu fit", strlen(note),
                                size - 1),
               false;
    memcpy(out, note, strlen(note) + 1);
    for (char *p = out, *end = out + strlen(out); p < end;) {
        int length = clef__utf8_length(p, end);
        if (!length) *p = '?';
        p += length ? length : 1;
    }
    return true;
}

static state current_state(clef_context *ctx, const clef_checkpoint *what) {
    state s = {.optimizer_present = what->optimizer != NULL,
               .schedule_present = what->schedule != NULL,
               .loader_present = what->loader != NULL,
               .random = clef_random_get(ctx),
               .epoch = what->epoch,
               .metric = what->metric};
    if (what->optimizer) s.optimizer = clef_optimizer_get(what->optimizer);
    if (what->schedule) s.schedule = clef_schedule_get(what->schedule);
    if (what->loader) s.loader = clef_loader_get(what->loader);
    return s;
}

clef_status clef_checkpoint_save(clef_context *ctx, const char *path, const clef_checkpoint *what) {
    if (!ctx || !what) return clef__fail(ctx, CLEF_INVALID, "checkpoint_save: context or description is NULL");
    clef__report report = {0};
    clef__number numbers[FIELDS];
    char note[sizeof what->note_out];
    const char *metadata[2 * (FIELDS + 2) + 1];
    int at = 0;
    state s = current_state(ctx, what);
    metadata[at++] = clef__checkpoint_key;
    metadata[at++] = format_number;
    for (int i = 0; i < FIELDS; i++) {
        if (!has_part(&s, fields[i].part)) continue;
        numbers[i] = format_field(&s, &fields[i]);
        metadata[at++] = fields[i].key;
        metadata[at++] = numbers[i].text;
    }
    roster r = {0};
    if (clean_note(what->note ? what->note : "", note, sizeof note, &report) && make_roster(&r, what, &report)) {
        metadata[at++] = "note";
        metadata[at++] = note;
        metadata[at] = NULL;
        write_roster(path, &r, metadata, &report);
    }
    clef__free(r.entry);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(ctx, "checkpoint_save", path, &report);
}

/* ---- loading ---- */
static bool read_state(const clef__st_index *index, const clef_checkpoint *what, state *s, clef__report *report) {
    const char *format = clef__st_metadata(index, clef__checkpoint_key);
    *s = (state){what->optimizer != NULL, what->schedule != NULL, what->loader != NULL, .epoch = 0};
    if (!format) clef__report_set(report, CLEF_FORMAT, "is no checkpoint; load a model with clef_load");
    else if (strcmp(format, format_number) != 0)
        clef__report_set(report, CLEF_UNSUPPORTED, "is a checkpoint of format %s; this library reads format %s",
                         clef__quote(format).text, format_number);
    for (int i = 0; i < FIELDS && report->status == CLEF_OK; i++) {
        if (!has_part(s, fields[i].part)) continue;
        const char *text = clef__st_metadata(index, fields[i].key);
        if (!text) clef__report_set(report, CLEF_FORMAT, "was saved without %s", fields[i].key);
        else if (!parse_field(s, &fields[i], text))
            clef__report_set(report, CLEF_FORMAT, "has a damaged %s: %s", fields[i].key, clef__quote(text).text);
    }
    return report->status == CLEF_OK;
}

/* Everything is checked; the loader comes first because it alone may still refuse. */
static void apply(clef_context *ctx, clef_checkpoint *what, const state *s, const clef__fill *fill, int n,
                  clef__report *report) {
    clef_status status = what->loader ? clef_loader_set(what->loader, s->loader) : CLEF_OK;
    if (status != CLEF_OK) {
        clef__report_set(report, status, "the loader cannot continue at epoch %lld, batch %lld",
                         (long long)s->loader.epoch, (long long)s->loader.batch);
        return;
    }
    if ((status = clef__assign_all(ctx, fill, n)) != CLEF_OK) {
        clef__report_set(report, status, "the tensors could not be assigned");
        return;
    }
    if (what->schedule) clef_schedule_set(what->schedule, s->schedule);
    if (what->optimizer) clef_optimizer_set(what->optimizer, s->optimizer); /* last: its learning rate counts */
    if (what->optimizer || what->loader) clef_random_set(ctx, s->random);
    what->epoch = s->epoch;
    what->metric = s->metric;
}

static void load(clef_context *ctx, const clef__reader *reader, clef_checkpoint *what, clef__report *report) {
    clef__st_index index;
    state s;
    roster r = {0};
    clef__fill *fill = NULL;
    if (clef__st_parse(reader, &index, report) != CLEF_OK) return;
    if (read_state(&index, what, &s, report) && make_roster(&r, what, report)) {
        int models = r.models, others = r.n - r.models;
        fill = clef__calloc((size_t)r.n, sizeof *fill);
        const char *note = clef__st_metadata(&index, "note");
        if (!fill) clef__report_set(report, CLEF_MEMORY, "no memory for %d names", r.n);
        else if (note && strlen(note) >= sizeof what->note_out)
            clef__report_set(report, CLEF_FORMAT, "has a note of %zu bytes", strlen(note));
        else if ((!what->module || clef__match(&index, "model.", r.entry, models, fill, report) == CLEF_OK) &&
                 (!what->optimizer ||
                  clef__match(&index, "optimizer.", r.entry + models, others, fill + models, report) == CLEF_OK) &&
                 clef__stage(ctx, reader, &index, fill, r.n, report) == CLEF_OK)
            apply(ctx, what, &s, fill, r.n, report);
        if (report->status == CLEF_OK) snprintf(what->note_out, sizeof what->note_out, "%s", note ? note : "");
    }
    clef__free(fill);
    clef__free(r.entry);
    clef__st_free(&index);
}

clef_status clef_checkpoint_load(clef_context *ctx, const char *path, clef_checkpoint *what) {
    if (!ctx || !what) return clef__fail(ctx, CLEF_INVALID, "checkpoint_load: context or description is NULL");
    clef__report report = {0};
    clef__reader reader;
    if (clef__reader_open(&reader, path, &report) == CLEF_OK) load(ctx, &reader, what, &report);
    clef__reader_close(&reader);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(ctx, "checkpoint_load", path, &report);
}
