/* checkpoints.c — best, last and numbered checkpoints, exact resuming, and the copy of the best weights.

   A checkpoint's note begins with this room's own line, which holds what the file's other members do not: how far the
   run was and the sums of an epoch under way (as numbers that come back bit for bit).  The caller's note
   follows, and a run is only resumed with the same one.

   A run holds a lock on its directory, which goes with its process: two runs would write over each other's files.  Of several ranks the first
   one locks and writes; all gather what it writes, and read. */
#define _DEFAULT_SOURCE /* flock */
#include "train/train_internal.h"
#include "io/io_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTE_SIZE = 1024, STATE_SIZE = 424 };

static char *path_of(const clef__fit *f, const char *name) { return clef__asprintf("%s/%s", f->o->checkpoint_dir, name); }

static clef_status no_memory(clef__fit *f) { return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for a checkpoint"); }

/* mkdir -p. */
static clef_status make_directory(clef__fit *f) {
    char *dir = clef__strdup(f->o->checkpoint_dir);
    if (!dir) return no_memory(f);
    int failed = 0;
    for (char *p = dir + 1; *dir && *p; p++)
        if (*p == '/') {
            *p = 0;
            (void)mkdir(dir, 0777);
            *p = '/';
        }
    if (mkdir(dir, 0777) && errno != EEXIST) failed = errno;
    clef__free(dir);
    return failed ? clef__fail(f->ctx, CLEF_IO, "fit: cannot make the directory %s: %s", f->o->checkpoint_dir, strerror(failed))
                  : CLEF_OK;
}

clef_status clef__check_extra(clef_context *ctx, const clef_fit_options *o) {
    clef__report report = {0};
    return clef__extra_check(o->extra, o->n_extra, false, &report) ? CLEF_OK
                                                                   : clef__fail(ctx, report.status, "fit: %s", report.text);
}

/* Where there are no locks (some network file systems) nobody is kept out. */
clef_status clef__checkpoint_begin(clef__fit *f) {
    if (f->o->checkpoint_note && strlen(f->o->checkpoint_note) > NOTE_SIZE - STATE_SIZE)
        return clef__fail(f->ctx, CLEF_INVALID, "fit: checkpoint_note is longer than %d bytes", NOTE_SIZE - STATE_SIZE);
    clef_status status = make_directory(f);
    if (status) return status;
    f->lock = open(f->o->checkpoint_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock >= 0 && flock(f->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return clef__fail(f->ctx, CLEF_STATE,
                          "fit: another run keeps its checkpoints in %s; give this one another directory, or "
                          "let that one end first",
                          f->o->checkpoint_dir);
    clef__remove_abandoned(f->o->checkpoint_dir);
    return CLEF_OK;
}

void clef__checkpoint_unlock(clef__fit *f) {
    if (f->lock >= 0) close(f->lock);
    f->lock = -1;
}

/* Acts on a file while layers that are cut are whole, on every rank, and under the run's autocast, which the file tells. */
static clef_status act_on_whole(clef__fit *f, clef_status (*act)(clef__fit *f, const char *path, void *user), const char *path,
                                void *user) {
    clef_status status = clef__whole_module(f, true);
    clef_dtype was = clef__loss_autocast(&f->loss);
    if (!status) status = act(f, path, user);
    clef_set_autocast(f->ctx, was);
    clef_status cut = clef__whole_module(f, false); /* also after a failure: callers may go on */
    return status ? status : cut;
}

static clef_status write_file(clef__fit *f, const char *path, void *what) { return clef_checkpoint_save(f->ctx, path, what); }

/* On every rank: rank 0 writes, and optimizer states that are cut over the ranks come together for it. */
static clef_status save(clef__fit *f, const char *name, const clef__meter_values *sums) {
    char note[NOTE_SIZE];
    const char *text = f->o->checkpoint_note ? f->o->checkpoint_note : "";
    int length = snprintf(note, sizeof note, "fit %s %s %s %s %s %s\n%s", clef__decimal(f->batch).text,
                          clef__decimal(f->items).text, clef__decimal(f->bad_epochs).text, clef__exact((double)sums->loss).text,
                          clef__exact((double)sums->correct).text, clef__exact((double)sums->good).text, text);
    if (length >= (int)sizeof note)
        return clef__fail(f->ctx, CLEF_INVALID, "fit: checkpoint_note is longer than %d bytes", NOTE_SIZE - STATE_SIZE);
    char *path = path_of(f, name);
    if (!path) return no_memory(f);
    clef_checkpoint what = {.module = f->module,
                            .optimizer = f->o->optimizer,
                            .schedule = f->o->schedule,
                            .loader = f->o->train,
                            .epoch = f->done,
                            .metric = f->best_metric,
                            .note = note,
                            .group = f->group,
                            .averaged = f->as_averaged ? NULL : f->o->averaged,
                            .scaler = f->o->scaler,
                            .extra = f->o->extra,
                            .n_extra = f->o->n_extra};
    clef_status status = act_on_whole(f, write_file, path, &what);
    clef__free(path);
    return status;
}

clef_status clef__checkpoint_inside(clef__fit *f) {
    clef__meter_values sums;
    clef_status status = clef__share_module(f);
    if (!status) status = clef__read_sums(f, &sums);
    if (!status && !isfinite(sums.loss)) status = clef__refuse_loss(f, &sums);
    if (!status) status = clef__by_first(f, make_directory);
    return status ? status : save(f, "last.ckpt", &sums);
}

static clef_status save_best(clef__fit *f) {
    static const clef__meter_values none;
    return save(f, "best.ckpt", &none);
}

static void drop_old(clef__fit *f) {
    char *old = clef__asprintf("%s/epoch-%lld.ckpt", f->o->checkpoint_dir, (long long)(f->done - f->o->keep));
    if (old) (void)unlink(old);
    clef__free(old);
}

clef_status clef__checkpoint_epoch(clef__fit *f) {
    static const clef__meter_values none;
    char name[64];
    snprintf(name, sizeof name, "epoch-%lld.ckpt", (long long)f->done);
    clef_status status = clef__by_first(f, make_directory);
    /* `last` comes last: a run that is killed before it repeats the epoch, and writes the same again. */
    if (!status && f->improved) status = clef__as_tested(f, save_best);
    if (!status && f->o->keep > 0) status = save(f, name, &none);
    if (!status) status = save(f, "last.ckpt", &none);
    if (!status && f->o->keep > 0 && clef__speaks(f)) drop_old(f);
    return status;
}

/* ---- resuming ---- */
bool clef__place_parse(const char *line, clef__place *p) {
    char word[6][40];
    if (sscanf(line, "fit %39s %39s %39s %39s %39s %39s", word[0], word[1], word[2], word[3], word[4], word[5]) != 6) return false;
    return clef__parse_decimal(word[0], &p->batch) && clef__parse_decimal(word[1], &p->items) &&
           clef__parse_decimal(word[2], &p->bad_epochs) && clef__parse_exact(word[3], &p->loss) &&
           clef__parse_exact(word[4], &p->correct) && clef__parse_exact(word[5], &p->good);
}

static bool within(double x, double low, double high) { return x >= low && x <= high; }

/* Could a run of this loader have come so far?  (The loss may be anything finite: some are negative.  Of sequences what is correct is a sum
   of shares in f32; a fit that began in the midst of an epoch has had fewer items than batches, maybe.) */
static bool is_possible(const clef__fit *f, const clef_checkpoint *seen, const clef__place *p) {
    int64_t batches = clef_loader_batches(f->o->train), items = clef_dataset_size(clef_loader_dataset(f->o->train));
    return seen->epoch >= 0 && seen->epoch <= UINT32_MAX && !isnan(seen->metric) && p->batch >= 0 && p->batch < batches &&
           p->items >= 0 && p->items <= items && p->bad_epochs >= 0 && p->bad_epochs <= seen->epoch &&
           within(p->loss, -FLT_MAX, FLT_MAX) && within(p->correct, 0, 1 + (double)p->items * (1 + 1e-5)) &&
           within(p->good, 0, (double)p->batch);
}

typedef struct resumption {
    const clef__fit *f;
    clef_checkpoint what;
    clef__place p;
} resumption;

static bool judge(void *user, const clef_checkpoint *seen, clef__report *report) {
    resumption *r = user;
    const char *note = strchr(seen->note_out, '\n');
    char now[NOTE_SIZE];
    snprintf(now, sizeof now, "%s", r->f->o->checkpoint_note ? r->f->o->checkpoint_note : "");
    clef__clean_text(now); /* as the file has it */
    if (!note || !clef__place_parse(seen->note_out, &r->p)) clef__report_set(report, CLEF_FORMAT, "was not written by fit");
    else if (strcmp(note + 1, now) != 0)
        clef__report_set(report, CLEF_INVALID, "was made with \"%s\", this run has \"%s\"", note + 1, now);
    else if (!is_possible(r->f, seen, &r->p))
        clef__report_set(report, CLEF_FORMAT,
                         "was left in epoch %lld after %lld batches and %lld items, where no run of this loader "
                         "comes",
                         (long long)seen->epoch, (long long)r->p.batch, (long long)r->p.items);
    return report->status == CLEF_OK;
}

static clef_status read_last(clef__fit *f, const char *path, void *user) {
    resumption *r = user;
    return clef__checkpoint_load(f->ctx, "fit: resume", path, &r->what, judge, r);
}

static clef_status take_over(clef__fit *f, const clef_checkpoint *what, const clef__place *p, const char *path) {
    f->done = what->epoch;
    f->best_metric = what->metric;
    f->batch = p->batch;
    f->items = p->items;
    f->bad_epochs = p->bad_epochs;
    f->resumed_inside = f->batch > 0;
    f->resumed_at = f->done * clef_loader_batches(f->o->train) + f->batch;
    if (f->done >= f->epochs && clef__speaks(f))
        clef__log_line(f->ctx, CLEF_LOG_WARNING,
                       "fit: resume: %s has %lld epochs behind it and %lld are wanted: there is nothing to train", path,
                       (long long)f->done, (long long)f->epochs);
    return clef__meters_set(&f->meters, (clef__meter_values){(float)p->loss, (float)p->correct, (float)p->good});
}

clef_status clef__checkpoint_resume(clef__fit *f) {
    char *path = path_of(f, "last.ckpt");
    if (!path) return no_memory(f);
    bool there;
    clef_status status = clef__is_there(f, path, &there);
    if (!status && there) {
        resumption r = {.f = f,
                        .what = {.module = f->module,
                                 .optimizer = f->o->optimizer,
                                 .schedule = f->o->schedule,
                                 .loader = f->o->train,
                                 .group = f->group,
                                 .averaged = f->o->averaged,
                                 .scaler = f->o->scaler,
                                 .extra = f->o->extra,
                                 .n_extra = f->o->n_extra}};
        status = act_on_whole(f, read_last, path, &r);
        if (!status) status = take_over(f, &r.what, &r.p, path);
    }
    clef__free(path);
    return status;
}

/* ---- the best weights ---- */
static clef_status make_copies(clef__fit *f) {
    f->n_best = clef_module_tensors(f->module);
    f->best = clef__calloc(2 * (size_t)f->n_best, sizeof *f->best);
    if (!f->best) return no_memory(f);
    for (int i = 0; i < f->n_best; i++) {
        f->best[i] = clef_keep(clef_module_tensor(f->module, i).tensor);
        clef_tensor *copy = clef_copy(clef_detach(f->best[i]));
        if (!copy) return clef_error_status(f->ctx);
        f->best[f->n_best + i] = clef_keep(copy);
    }
    return CLEF_OK;
}

/* Are these still the module's tensors?  A callback may have replaced a child. */
static bool is_current(const clef__fit *f) {
    bool same = f->n_best == clef_module_tensors(f->module);
    for (int i = 0; same && i < f->n_best; i++) same = f->best[i] == clef_module_tensor(f->module, i).tensor;
    return same;
}

clef_status clef__best_remember(clef__fit *f) {
    f->best_in_memory = true;
    clef_status status = CLEF_OK;
    if (f->best && !is_current(f)) clef__best_forget(f);
    if (!f->best) status = make_copies(f);
    else
        for (int i = 0; i < f->n_best && !status; i++)
            status = clef_assign(f->best[f->n_best + i], clef_copy(clef_detach(f->best[i])));
    return status ? status : clef_end_step(f->ctx);
}

static clef_status read_best(clef__fit *f, const char *path, void *unused) {
    (void)unused;
    return clef_checkpoint_load(f->ctx, path, &(clef_checkpoint){.module = f->module, .group = f->group});
}

/* From memory, or from best.ckpt where the best epoch lies before the resumption. */
clef_status clef__best_restore(clef__fit *f) {
    clef_status status = CLEF_OK;
    if (!f->best_in_memory && !isfinite(f->best_metric)) return CLEF_OK; /* there was none; a file is another run's */
    if (!f->best_in_memory) {
        bool there = false;
        char *path = f->o->checkpoint_dir ? path_of(f, "best.ckpt") : NULL;
        if (path) status = clef__is_there(f, path, &there);
        if (there && !status) status = act_on_whole(f, read_best, path, NULL);
        clef__free(path);
        return status;
    }
    for (int i = 0; i < f->n_best && !status; i++) status = clef_assign(f->best[i], f->best[f->n_best + i]);
    return status ? status : clef_end_step(f->ctx);
}

void clef__best_forget(clef__fit *f) {
    for (int i = 0; f->best && i < 2 * f->n_best; i++) clef_release(f->best[i]);
    clef__free(f->best);
    f->best = NULL;
}
