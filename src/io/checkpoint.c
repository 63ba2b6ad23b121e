/* checkpoint.c — training state as one safetensors file.

   Tensors: "model." + name, "optimizer." + name, "averaged." + name.  Everything else is metadata, as text that comes back bit for bit
   (clef__exact, clef__decimal): see checkpoint_numbers.c.  "clef.checkpoint" marks the file and holds the format's
   number: 2; files of format 1 have no checksum and say nothing of the device.  Loading checks and uploads everything,
   and hears whether its caller wants it, before it changes anything. */
#include "checkpoint_numbers.h"
#include "data/data_internal.h"
#include "group/group.h"
#include "io_internal.h"
#include "optim/optimizer.h"
#include <math.h>
#include <string.h>

const char clef__checkpoint_key[] = "clef.checkpoint";
static const char format_number[] = "2", format_without_checksum[] = "1";

static const char layouts_key[] = "memory.order";
/* ---- the tensors of model, optimizer and averages in one list ---- */
typedef enum owner { MODEL, OPTIMIZER_STATES, AVERAGES, OWNERS } owner;
static const char *const prefixes[OWNERS] = {"model.", "optimizer.", "averaged."};
typedef struct roster {
    clef_named_tensor *entry;
    int first[OWNERS + 1]; /* entry of each owner; the last one: of nobody */
    int n;
} roster;

static int count_of(const roster *r, owner o) { return r->first[o + 1] - r->first[o]; }

static owner owner_of(const roster *r, int i) {
    owner o = MODEL;
    while (i >= r->first[o + 1]) o++;
    return o;
}

static clef_named_tensor tensor_of(const clef_checkpoint *what, owner o, int i, bool gather) {
    switch (o) {
    case MODEL: return clef_module_tensor(what->module, i);
    case OPTIMIZER_STATES: return clef__optimizer_whole(what->optimizer, i, gather);
    default: return clef_averaged_tensor(what->averaged, i);
    }
}

/* Optimizer states that are cut over ranks as wholes; gather: with their values. */
static bool make_roster(roster *r, const clef_checkpoint *what, bool gather, clef__report *report) {
    const int count[OWNERS] = {clef_module_tensors(what->module), clef_optimizer_tensors(what->optimizer),
                               clef_averaged_tensors(what->averaged)};
    for (int o = 0; o < OWNERS; o++) r->first[o + 1] = r->first[o] + count[o];
    r->n = r->first[OWNERS];
    r->entry = clef__calloc((size_t)r->n, sizeof *r->entry);
    if (!r->entry) return clef__report_set(report, CLEF_MEMORY, "no memory for %d names", r->n), false;
    for (int i = 0; i < r->n; i++) {
        owner o = owner_of(r, i);
        r->entry[i] = tensor_of(what, o, i - r->first[o], gather);
        if (!r->entry[i].name || !r->entry[i].tensor)
            return clef__report_set(report, CLEF_STATE, "tensor %d of model, optimizer and averages is not to be had", i), false;
    }
    return true;
}

/* ---- saving ---- */
static void free_names(char **names, int n) {
    for (int i = 0; names && i < n; i++) clef__free(names[i]);
    clef__free(names);
}

/* Every rank gathers, rank 0 writes. */
static bool gather_elsewhere(const clef_checkpoint *what, clef__report *report) {
    if (!what->optimizer || !clef__optimizer_is_cut(what->optimizer)) return false;
    clef_group *group = clef__optimizer_group(what->optimizer);
    if (clef_group_rank(group) == 0) return false;
    clef_status status = clef__group_settle(group);
    if (status != CLEF_OK) clef__report_set(report, status, "the states of the optimizer are not to be gathered");
    return true;
}

/* What is not UTF-8 becomes '?': a note may hold anything, such as the bytes of a file's name. */
void clef__clean_text(char *text) {
    for (char *p = text, *end = text + strlen(text); p < end;) {
        int length = clef__utf8_length(p, end);
        if (!length) *p = '?';
        p += length ? length : 1;
    }
}

static bool clean_note(const char *note, char *out, size_t size, clef__report *report) {
    if (strlen(note) >= size)
        return clef__report_set(report, CLEF_INVALID, "the note has %zu bytes; at most %zu fit", strlen(note), size - 1), false;
    memcpy(out, note, strlen(note) + 1);
    clef__clean_text(out);
    return true;
}

/* What results depend on to the last bit beside what the checkpoint holds. */
typedef struct maker {
    char text[320];
} maker;

/* Of batches in parts the number of ranks says nothing. */
static maker maker_of(const clef_context *ctx, const clef_checkpoint *what) {
    maker m = {""};
    size_t used = 0;
    for (int i = 0; i < clef_context_device_count(ctx) && used < sizeof m.text; i++) {
        const clef_device_info *info = clef__device_planned(clef__device_at(ctx, i)); /* with clef_options.sum_units */
        used += (size_t)snprintf(m.text + used, sizeof m.text - used, "%s%s, driver %s, %u compute units", i ? "; " : "",
                                 info->name, info->driver, (unsigned)info->compute_units);
    }
    int parts = clef_loader_parts(what->loader), n = parts ? parts : clef_group_size(what->group);
    if (n > 1 && used < sizeof m.text) snprintf(m.text + used, sizeof m.text - used, "; %d %s", n, parts ? "parts" : "ranks");
    if (clef_get_matmul_precision(ctx) == CLEF_MATMUL_HIGH && used < sizeof m.text) {
        size_t end = strlen(m.text);
        snprintf(m.text + end, sizeof m.text - end, "; f32 may be multiplied in TF32");
    }
    clef_dtype low = clef_get_autocast(ctx);
    if (low != CLEF_F32 && used < sizeof m.text) {
        size_t end = strlen(m.text);
        snprintf(m.text + end, sizeof m.text - end, "; autocast to %s", clef_dtype_name(low));
    }
    clef__clean_text(m.text); /* a character may have been cut, too */
    return m;
}

/* None of a loader whose shares are the program's, or are still looked for. */
static clef__saved_shares measured_shares(const clef_loader *loader) {
    clef__saved_shares s = {.n = 0};
    if (!clef__loader_measures(loader) || !clef_loader_shares_fixed(loader)) return s;
    s.n = clef_loader_shares(loader, s.of, CLEF__SHARES_MOST);
    if (s.n > CLEF__SHARES_MOST) s.n = 0;
    return s;
}

static clef__run_numbers current_numbers(clef_context *ctx, const clef_checkpoint *what) {
    clef__run_numbers s = {.optimizer_present = what->optimizer != NULL,
                           .schedule_present = what->schedule != NULL,
                           .loader_present = what->loader != NULL,
                           .averaged_present = what->averaged != NULL,
                           .updates = clef_averaged_updates(what->averaged),
                           .scaler_present = what->scaler != NULL,
                           .scaler = clef_grad_scaler_get(what->scaler),
                           .random = clef_random_get(ctx),
                           .epoch = what->epoch,
                           .metric = what->metric};
    if (what->optimizer) s.optimizer = clef_optimizer_get(what->optimizer);
    if (what->schedule) s.schedule = clef_schedule_get(what->schedule);
    if (what->loader) s.loader = clef_loader_get(what->loader);
    if (what->loader) s.shares = measured_shares(what->loader);
    return s;
}

/* All that is no tensor, as pairs of strings. */
typedef struct pairs {
    const char **text;
    char **extra; /* pairs of the program's own */
    int n, extras;
    clef__number_texts numbers;
} pairs;

enum { OTHER_PAIRS = 6 }; /* beside numbers and extra values */

static bool open_pairs(pairs *p, const clef_checkpoint *what, clef__report *report) {
    if (!clef__extra_check(what->extra, what->n_extra, true, report)) return false;
    p->extras = what->n_extra;
    p->extra = clef__extra_pairs(what->extra, p->extras, report);
    p->text = clef__calloc(2 * ((size_t)CLEF__NUMBERS_MOST + OTHER_PAIRS + (size_t)p->extras) + 1, sizeof *p->text);
    if (!p->text) clef__report_set(report, CLEF_MEMORY, "no memory for its numbers");
    return p->text && p->extra;
}

static void close_pairs(pairs *p) {
    clef__extra_free(p->extra, p->extras);
    clef__free(p->text);
}

static void add_pair(pairs *p, const char *key, const char *value) {
    p->text[p->n++] = key;
    p->text[p->n++] = value;
    p->text[p->n] = NULL;
}

static bool add_numbers(pairs *p, const clef__run_numbers *s, clef__report *report) {
    if (!clef__numbers_format(s, &p->numbers, report)) return false;
    for (int i = 0; i < p->numbers.n; i++) add_pair(p, p->numbers.key[i], p->numbers.text[i]);
    for (int i = 0; i < p->extras; i++) add_pair(p, p->extra[2 * i], p->extra[2 * i + 1]);
    return true;
}

/* Their names in the file, as a new array; NULL after a report. */
static char **name_roster(roster *r, clef__report *report) {
    char **names = clef__calloc((size_t)r->n, sizeof *names);
    for (int i = 0; names && i < r->n; i++) {
        names[i] = clef__asprintf("%s%s", prefixes[owner_of(r, i)], r->entry[i].name);
        r->entry[i].name = names[i];
        if (names[i]) continue;
        free_names(names, r->n);
        names = NULL;
    }
    if (!names) clef__report_set(report, CLEF_MEMORY, "no memory for %d names", r->n);
    return names;
}

/* With how they lie in memory. */
static void write_roster(const char *path, roster *r, pairs *p, clef__report *report) {
    char **names = name_roster(r, report);
    char *layouts = names ? clef__layouts_text(r->entry, r->n, report) : NULL;
    if (layouts && *layouts) add_pair(p, layouts_key, layouts);
    if (layouts) clef__write_tensors(path, r->entry, r->n, p->text, report);
    clef__free(layouts);
    free_names(names, r->n);
}

static void save_parts(clef_context *ctx, const char *path, const clef_checkpoint *what, pairs *p, clef__report *report) {
    char note[sizeof what->note_out];
    clef__run_numbers s = current_numbers(ctx, what);
    maker made = maker_of(ctx, what);
    roster r = {0};
    add_pair(p, clef__checkpoint_key, format_number);
    add_pair(p, clef__st_checksum_key, "");
    add_pair(p, "device", made.text);
    if (add_numbers(p, &s, report) && clean_note(what->note ? what->note : "", note, sizeof note, report) &&
        make_roster(&r, what, true, report) && !gather_elsewhere(what, report)) {
        add_pair(p, "note", note);
        write_roster(path, &r, p, report);
    }
    clef__free(r.entry);
}

static clef_status save(clef_context *ctx, const char *path, const clef_checkpoint *what) {
    clef__report report = {0};
    pairs p = {.n = 0};
    if (open_pairs(&p, what, &report)) save_parts(ctx, path, what, &p, &report);
    close_pairs(&p);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(ctx, "checkpoint_save", path, &report);
}

/* Can a description be used at all? */
static clef_status check(const char *op, clef_context *ctx, const clef_checkpoint *what) {
    if (!ctx || !what) return clef__fail(ctx, CLEF_INVALID, "%s: context or description is NULL", op);
    if (what->group && what->group->ctx != ctx)
        return clef__fail(ctx, CLEF_INVALID, "%s: the group belongs to another context; each rank has its own", op);
    return what->averaged && clef__averaged_in_use(what->averaged) ? clef__refuse_averages(ctx, op) : CLEF_OK;
}

clef_status clef_checkpoint_save(clef_context *ctx, const char *path, const clef_checkpoint *what) {
    clef_status status = check("checkpoint_save", ctx, what);
    if (status) return status;
    bool writes = clef_group_rank(what->group) == 0, gathers = what->optimizer && clef__optimizer_is_cut(what->optimizer);
    return clef__group_agree(what->group, writes || gathers ? save(ctx, path, what) : CLEF_OK);
}

/* ---- loading ---- */

/* What is loaded would be lost when it gets back its own. */
static bool has_averages(clef_context *ctx, const clef_module *module) {
    for (int i = 0; i < clef_module_tensors(module); i++)
        if (clef__has_average(ctx, clef_module_tensor(module, i).tensor)) return true;
    return false;
}

typedef struct loading {
    clef_context *ctx;
    const char *op, *path;
    clef__reader reader;
    clef__st_index index;
    clef__run_numbers s;
    roster r;
    clef__fill *fill; /* of all of r */
    clef__report report;
} loading;

static bool good(const loading *l) { return l->report.status == CLEF_OK; }

/* Is it a whole checkpoint of a format that is read here?  Nothing else in a damaged file means anything. */
static bool check_file(loading *l) {
    bool has_checksum = false;
    const char *format = clef__st_metadata(&l->index, clef__checkpoint_key);
    if (clef__st_verify(&l->reader, &l->index, &has_checksum, &l->report) != CLEF_OK) return false;
    if (!format) clef__report_set(&l->report, CLEF_FORMAT, "is no checkpoint; load a model with clef_load");
    else if (strcmp(format, format_without_checksum) == 0 && !has_checksum)
        clef__log_line(l->ctx, CLEF_LOG_WARNING,
                       "%s: %s is a checkpoint of format 1, without a checksum: damage in it would not be found; "
                       "saving it anew gives it one",
                       l->op, l->path);
    else if (strcmp(format, format_number) != 0)
        clef__report_set(&l->report, CLEF_UNSUPPORTED, "is a checkpoint of format %s; this library reads format %s",
                         clef__quote(format).text, format_number);
    else if (!has_checksum) clef__report_set(&l->report, CLEF_FORMAT, "is damaged: it has no checksum");
    return good(l);
}

static bool read_numbers(loading *l, const clef_checkpoint *what) {
    l->s = (clef__run_numbers){.optimizer_present = what->optimizer,
                               .schedule_present = what->schedule,
                               .loader_present = what->loader,
                               .averaged_present = what->averaged,
                               .scaler_present = what->scaler};
    return clef__numbers_parse(&l->s, &l->index, &l->report);
}

/* The optimizer's own "step": how often each parameter was updated. */
static bool check_counts(loading *l) {
    const clef__fill *counts = &l->fill[l->r.first[OPTIMIZER_STATES]];
    bool there = count_of(&l->r, OPTIMIZER_STATES) > 0 && counts->source->dtype == CLEF_I64;
    size_t bytes = there ? (size_t)(counts->source->end - counts->source->begin) : 0;
    int64_t *count = clef__alloc(bytes);
    if (!count) clef__report_set(&l->report, CLEF_MEMORY, "no memory for %zu bytes", bytes);
    else if (bytes && clef__st_read(&l->reader, &l->index, counts->source, count, &l->report) != CLEF_OK) bytes = 0;
    for (size_t i = 0; good(l) && i < bytes / sizeof *count; i++)
        if (!clef__is_count(count[i]))
            clef__report_set(&l->report, CLEF_FORMAT, "says that parameter %zu was updated %lld times", i, (long long)count[i]);
    clef__free(count);
    return good(l);
}

static bool read_tensors(loading *l, const clef_checkpoint *what) {
    const bool wanted[OWNERS] = {what->module != NULL, what->optimizer != NULL, what->averaged != NULL};
    l->fill = clef__calloc((size_t)l->r.n, sizeof *l->fill);
    if (!l->fill) return clef__report_set(&l->report, CLEF_MEMORY, "no memory for %d names", l->r.n), false;
    for (int o = 0, at; o < OWNERS && good(l); o++)
        if (at = l->r.first[o], wanted[o])
            clef__match(&l->index, prefixes[o], l->r.entry + at, count_of(&l->r, (owner)o), l->fill + at, &l->report);
    if (!good(l) || !check_counts(l) || clef__stage(l->ctx, &l->reader, &l->index, l->fill, l->r.n, &l->report)) return false;
    const char *layouts = clef__st_metadata(&l->index, layouts_key);
    if (layouts) clef__layouts_apply(l->ctx, layouts, l->fill, l->r.n, &l->report);
    return good(l);
}

/* Of a state that is cut over ranks, this rank keeps its part: the whole is let go at once. */
static bool cut_states(loading *l, const clef_checkpoint *what) {
    bool is_cut = what->optimizer && clef__optimizer_is_cut(what->optimizer);
    int first = l->r.first[OPTIMIZER_STATES];
    for (int i = 0; is_cut && i < count_of(&l->r, OPTIMIZER_STATES) && good(l); i++) {
        clef__fill *fill = &l->fill[first + i];
        clef_named_tensor own = clef_optimizer_tensor(what->optimizer, i);
        clef_tensor *kept = clef__optimizer_part(what->optimizer, i, fill->value);
        clef_status status = kept ? clef_eval(kept) : clef_error_status(l->ctx);
        if (status != CLEF_OK) clef__report_set(&l->report, status, "this rank's part of %s is not to be had", own.name);
        *fill = (clef__fill){own.tensor, kept, fill->source};
    }
    return good(l);
}

/* What the caller sees of it, in a copy of theirs. */
static bool read_rest(loading *l, clef_checkpoint *seen) {
    const char *note = clef__st_metadata(&l->index, "note");
    if (note && strlen(note) >= sizeof seen->note_out)
        return clef__report_set(&l->report, CLEF_FORMAT, "has a note of %zu bytes", strlen(note)), false;
    seen->epoch = l->s.epoch;
    seen->metric = l->s.metric;
    snprintf(seen->note_out, sizeof seen->note_out, "%s", note ? note : "");
    return true;
}

/* Those of another number of ranks are measured anew. */
static void go_on_with_shares(clef_loader *loader, const clef__saved_shares *s) {
    int64_t sum = 0;
    for (int r = 0; r < s->n; r++) sum += s->of[r];
    if (sum > 0 && clef__loader_measures(loader) && s->n == clef_loader_shares(loader, NULL, 0))
        clef_loader_set_shares(loader, s->of, s->n);
}

/* Nothing after the loader, which may still refuse, can fail. */
static void apply(loading *l, clef_checkpoint *what, const clef_checkpoint *seen) {
    clef_status status = what->loader ? clef_loader_set(what->loader, l->s.loader) : CLEF_OK;
    if (status != CLEF_OK) {
        clef__report_set(&l->report, status, "the loader cannot continue at epoch %lld, batch %lld", (long long)l->s.loader.epoch,
                         (long long)l->s.loader.batch);
        return;
    }
    if (what->loader) go_on_with_shares(what->loader, &l->s.shares);
    clef__assign_all(l->fill, l->r.n);
    clef__extra_take(&l->index, what->extra, what->n_extra);
    if (what->averaged) clef_averaged_set(what->averaged, l->s.updates);
    if (what->scaler) clef_grad_scaler_set(what->scaler, l->s.scaler);
    if (what->schedule) clef_schedule_set(what->schedule, l->s.schedule);
    if (what->optimizer) clef_optimizer_set(what->optimizer, l->s.optimizer); /* last: its learning rate counts */
    if (what->optimizer || what->loader) clef_random_set(l->ctx, l->s.random);
    *what = *seen;
}

static void compare_makers(const loading *l, const clef_checkpoint *what) {
    const char *then = clef__st_metadata(&l->index, "device");
    maker now = maker_of(l->ctx, what);
    if (clef_group_rank(what->group) == 0 && then && strcmp(then, now.text) != 0)
        clef__log_line(l->ctx, CLEF_LOG_WARNING,
                       "%s: %s was made on %.300s, and this is %s: the run goes on, with other last bits than "
                       "it would have had there",
                       l->op, l->path, then, now.text);
}

/* All that needs no device. */
static bool examine(loading *l, const clef_checkpoint *what, clef_checkpoint *seen) {
    return clef__extra_check(what->extra, what->n_extra, false, &l->report) &&
           clef__st_parse(&l->reader, &l->index, &l->report) == CLEF_OK && check_file(l) && read_numbers(l, what) &&
           clef__extra_examine(&l->index, what->extra, what->n_extra, &l->report) && read_rest(l, seen);
}

clef_status clef__checkpoint_examine(const clef__reader *reader, const clef_checkpoint *what, clef_checkpoint *seen,
                                     clef__report *report) {
    loading l = {.op = "checkpoint", .path = "", .reader = *reader};
    examine(&l, what, seen);
    clef__st_free(&l.index);
    *report = l.report;
    return report->status;
}

/* What every rank of the group found in the file must be good, and the same file. */
static void agree(loading *l, clef_group *group) {
    enum { SUM = 64 };
    int size = clef_group_size(group);
    if (size == 1) return;
    char own[SUM] = "", line[CLEF_TRANSPORT_LINE], (*all)[SUM] = clef__calloc((size_t)size, SUM);
    const char *sum = good(l) ? clef__st_metadata(&l->index, clef__st_checksum_key) : NULL;
    if (!all) clef__report_set(&l->report, CLEF_MEMORY, "no memory for what %d ranks say", size);
    snprintf(line, sizeof line, "%s", l->report.text);
    snprintf(own, sizeof own, "%s", sum ? sum : "");
    clef_status status = clef__group_agree_line(group, l->report.status, line);
    if (status && good(l)) clef__report_set(&l->report, status, "%s", line);
    if (!status) status = clef_group_gather_bytes(group, own, all, SUM);
    for (int r = 1; !status && r < size; r++)
        if (strcmp(all[r], all[0]) != 0)
            status = clef__report_set(&l->report, CLEF_GROUP, "is another file for %s than for %s; give all ranks the same one",
                                      clef_group_rank_name(group, r), clef_group_rank_name(group, 0));
    if (status && good(l)) clef__report_set(&l->report, status, "%s", clef_error(l->ctx));
    clef__free(all);
}

/* All that can fail, but for the loader's place. */
static void prepare(loading *l, const clef_checkpoint *what, clef_checkpoint *seen, clef__checkpoint_judge judge, void *user) {
    if (clef__reader_open(&l->reader, l->path, &l->report) == CLEF_OK && examine(l, what, seen) &&
        (!judge || judge(user, seen, &l->report)) && make_roster(&l->r, what, false, &l->report) && read_tensors(l, what))
        cut_states(l, what);
}

clef_status clef__checkpoint_load(clef_context *ctx, const char *op, const char *path, clef_checkpoint *what,
                                  clef__checkpoint_judge judge, void *user) {
    loading l = {.ctx = ctx, .op = op, .path = path};
    clef_checkpoint seen = *what;
    prepare(&l, what, &seen, judge, user);
    agree(&l, what->group);
    if (good(&l)) apply(&l, what, &seen);
    if (good(&l) && (what->optimizer || what->loader)) compare_makers(&l, what);
    clef__free(l.fill);
    clef__free(l.r.entry);
    clef__st_free(&l.index);
    clef__reader_close(&l.reader);
    return good(&l) ? CLEF_OK : clef__report_fail(ctx, op, path, &l.report);
}

clef_status clef_checkpoint_load(clef_context *ctx, const char *path, clef_checkpoint *what) {
    clef_status status = check("checkpoint_load", ctx, what);
    if (!status && has_averages(ctx, what->module)) status = clef__refuse_averages(ctx, "checkpoint_load");
    if (status) return status;
    return clef__checkpoint_load(ctx, "checkpoint_load", path, what, NULL, NULL);
}
