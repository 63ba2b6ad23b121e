/* loader.c — batches in order, made ahead by threads.

   Within an epoch, batches are numbered 0, 1, …; a thread claims the next number, fills that number's slot of a
   ring and marks it; clef_next takes them strictly in order.  A batch's content depends on (seed, epoch, number)
   only, so results are the same for any number of threads.  Numbers beyond taken + slots are not claimed (the
   queue is bounded), nor are those of the next epoch.  Threads start with the first clef_next and are joined by
   close, set, and an error; `order` and the filler change only while no thread has anything claimed. */
#include "data/fill.h"
#include "graph/graph.h"
#include "group/group.h"
#include "runtime/arithmetic.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS_MAX = 256, PREFETCH_MAX = 4096, SIDE_MAX = 65536 };

typedef struct slot {
    int64_t holds;    /* the batch that lies here; -1: none */
    int64_t failed;   /* -1, or the item that could not be fetched */
    uint8_t **memory; /* one block for each field of the data */
} slot;

typedef struct worker {
    clef_loader *loader;
    pthread_t thread;
    float *scratch;
} worker;

struct clef_loader {
    clef_context *ctx;
    clef__loader_link link;
    clef_dataset *data;
    clef__filler filler;
    uint64_t seed;
    bool shuffle;
    int device;
    clef_group *group;     /* that shares every batch; NULL: one rank */
    clef__shares shares;   /* change only while no thread runs */
    int64_t size, batches; /* items per full batch, of all ranks; batches per epoch */
    int64_t epoch, taken;  /* where it stands: `taken` batches of `epoch` were handed out */
    clef_tensor **tensor;  /* of the last batch: inputs, then targets */

    /* while running */
    bool running;
    pid_t pid; /* of the process that owns the threads */
    int n_workers, started, n_slots;
    worker *workers;
    slot *slots;
    int64_t *order, ordered; /* ordered: the epoch whose order this is; -1: none */

    pthread_mutex_t lock; /* of what follows, `taken` and the slots' marks */
    pthread_cond_t work, done;
    int64_t claimed;
    bool stop;
};

/* ---- threads ---- */
static int64_t batch_items(const clef_loader *loader, int64_t batch) {
    int64_t left = loader->data->size - batch * loader->size;
    return left < loader->size ? left : loader->size;
}

static clef__share batch_share(const clef_loader *loader, int64_t batch) {
    return clef__share_in(&loader->shares, batch_items(loader, batch));
}

/* Waits for a batch to make; -1: stop.  Holds the lock. */
static int64_t claim(clef_loader *loader) {
    while (!loader->stop && (loader->claimed >= loader->batches || loader->claimed >= loader->taken + loader->n_slots))
        pthread_cond_wait(&loader->work, &loader->lock);
    return loader->stop ? -1 : loader->claimed++;
}

static void *work(void *argument) {
    worker *w = argument;
    clef_loader *loader = w->loader;
    pthread_mutex_lock(&loader->lock);
    for (int64_t batch; (batch = claim(loader)) >= 0;) {
        uint32_t epoch = (uint32_t)loader->epoch;
        pthread_mutex_unlock(&loader->lock);
        slot *s = &loader->slots[batch % loader->n_slots];
        clef__share share = batch_share(loader, batch);
        const int64_t *items = loader->order + batch * loader->size + share.first;
        int64_t failed = clef__filler_run(&loader->filler, items, share.items, epoch, w->scratch, s->memory);
        pthread_mutex_lock(&loader->lock);
        s->failed = failed;
        s->holds = batch;
        pthread_cond_signal(&loader->done); /* clef_next is the only one that waits there */
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static void free_slot(const clef_loader *loader, slot *s) {
    for (int f = 0; s->memory && f < loader->data->n_fields; f++) clef__free(s->memory[f]);
    clef__free(s->memory);
}

static void free_work(clef_loader *loader) {
    for (int i = 0; loader->slots && i < loader->n_slots; i++) free_slot(loader, &loader->slots[i]);
    for (int i = 0; loader->workers && i < loader->n_workers; i++) clef__free(loader->workers[i].scratch);
    clef__free(loader->slots);
    clef__free(loader->workers);
    clef__free(loader->order);
    loader->slots = NULL;
    loader->workers = NULL;
    loader->order = NULL;
    loader->ordered = -1;
}

/* Joins the threads; batches made ahead are dropped.  In a forked child there are no threads and nothing to join.
 */
static void halt(clef_loader *loader) {
    if (!loader->running) return;
    loader->running = false;
    if (loader->pid == getpid()) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_broadcast(&loader->work);
        pthread_mutex_unlock(&loader->lock);
        for (int i = 0; i < loader->started; i++) pthread_join(loader->workers[i].thread, NULL);
        pthread_cond_destroy(&loader->work);
        pthread_cond_destroy(&loader->done);
        pthread_mutex_destroy(&loader->lock);
    }
    free_work(loader);
}

/* Room for one batch. */
static bool new_slot(const clef_loader *loader, slot *s) {
    const clef_dataset *data = loader->data;
    *s = (slot){.holds = -1, .failed = -1, .memory = clef__calloc((size_t)data->n_fields, sizeof *s->memory)};
    int64_t most = clef__share_in(&loader->shares, loader->size).items + 1; /* a smaller batch may round to one more */
    for (int f = 0; s->memory && f < data->n_fields; f++)
        if (!(s->memory[f] = clef__alloc((size_t)most * data->field[f].bytes))) return false;
    return s->memory != NULL;
}

static bool new_work(clef_loader *loader) {
    size_t scratch = clef__filler_scratch(&loader->filler);
    loader->slots = clef__calloc((size_t)loader->n_slots, sizeof *loader->slots);
    loader->workers = clef__calloc((size_t)loader->n_workers, sizeof *loader->workers);
    loader->order = clef__calloc((size_t)loader->data->size, sizeof *loader->order);
    if (!loader->slots || !loader->workers || !loader->order) return false;
    for (int i = 0; i < loader->n_slots; i++)
        if (!new_slot(loader, &loader->slots[i])) return false;
    for (int i = 0; i < loader->n_workers; i++) {
        worker *w = &loader->workers[i];
        w->loader = loader;
        if (scratch && !(w->scratch = clef__alloc(scratch * sizeof *w->scratch))) return false;
    }
    return true;
}

static void put_in_order(clef_loader *loader) {
    if (loader->ordered == loader->epoch) return;
    if (loader->shuffle) clef__order_shuffled(loader->order, loader->data->size, loader->seed, (uint32_t)loader->epoch);
    else if (loader->ordered < 0)
        for (int64_t i = 0; i < loader->data->size; i++) loader->order[i] = i;
    loader->ordered = loader->epoch;
}

/* Starts the threads with all signals blocked: Ctrl-C and the like belong to the program's own threads. */
static int start_threads(clef_loader *loader) {
    sigset_t all, before;
    int status = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (loader->started = 0; loader->started < loader->n_workers; loader->started++) {
        status = pthread_create(&loader->workers[loader->started].thread, NULL, work, &loader->workers[loader->started]);
        if (status != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return loader->started > 0 ? 0 : status; /* fewer threads give the same batches */
}

static bool start(clef_loader *loader) {
    if (!new_work(loader)) {
        free_work(loader);
        clef__fail(loader->ctx, CLEF_MEMORY, "loader: no memory for %d batches of %lld items ahead; lower batch or prefetch",
                   loader->n_slots, (long long)loader->size);
        return false;
    }
    put_in_order(loader);
    loader->claimed = loader->taken;
    loader->stop = false;
    loader->pid = getpid();
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, NULL);
    loader->running = true;
    int status = start_threads(loader);
    if (status == 0) return true;
    halt(loader);
    clef__fail(loader->ctx, CLEF_MEMORY, "loader: no thread could be started (%s)", strerror(status));
    return false;
}

/* ---- opening and closing ---- */
/* NULL, or what is wrong with the options. */
static const char *wrong_options(const clef_dataset *data, const clef_loader_options *o) {
    if (o->batch < 0 || o->workers < 0 || o->workers > WORKERS_MAX || o->prefetch < 0 || o->prefetch > PREFETCH_MAX)
        return "batch is 0 or more, workers 0 to 256, prefetch 0 to 4096";
    const char *wrong = clef__augment_wrong(&o->augment);
    if (wrong) return wrong;
    if (o->device < 0 || o->device >= clef__context_devices(data->ctx))
        return "the context has no such device; open several with clef_options.device";
    int rank = data->image >= 0 ? data->field[data->image].shape.rank : 0;
    if ((o->mean || o->std) && data->image < 0) return "mean and std need an f32 input, and the data has none";
    if (clef__augments(&o->augment) && !((rank == 2 || rank == 3) && data->height <= SIDE_MAX && data->width <= SIDE_MAX))
        return "augmentation needs items of shape [c,h,w] or [h,w], sides up to 65536";
    for (int c = 0; c < data->channels; c++) {
        if (o->mean && !isfinite(o->mean[c])) return "mean has a value that is not finite";
        if (o->std && !(isfinite(o->std[c]) && o->std[c] > 0 && isfinite(1 / o->std[c])))
            return "std has a value that is not above 0, or has no finite inverse";
    }
    return NULL;
}

static bool batch_fits(const clef_dataset *data, int64_t size) {
    for (int f = 0; f < data->n_fields; f++)
        if ((size_t)size > SIZE_MAX / 8 / data->field[f].bytes) return false;
    return true;
}

static clef_loader *refuse_data(const clef_dataset *data, const char *reason) {
    clef__fail(data->ctx, CLEF_INVALID, "loader: %s", reason);
    return NULL;
}

/* How many items a batch has, how many there are, and the ring: every thread can hold a slot while one is taken.
 */
static void plan_batches(clef_loader *loader, const clef_loader_options *o) {
    int64_t items = loader->data->size, size = o->batch ? o->batch : CLEF__BATCH_USUAL;
    loader->batches = o->drop_last ? items / size : items / size + (items % size != 0);
    loader->size = size < items ? size : items;
    loader->n_workers = o->workers ? o->workers : 1;
    loader->n_slots = o->prefetch ? o->prefetch : 2;
    if (loader->n_slots < loader->n_workers) loader->n_slots = loader->n_workers;
    if (loader->n_slots > loader->batches) loader->n_slots = (int)loader->batches;
    if (loader->n_workers > loader->n_slots) loader->n_workers = loader->n_slots;
}

clef_loader *clef_loader_open(clef_dataset *data, const clef_loader_options *options) {
    static const clef_loader_options defaults;
    const clef_loader_options *o = options ? options : &defaults;
    if (!data || !clef__usable(data->ctx)) return NULL;
    const char *wrong = wrong_options(data, o);
    if (!wrong) wrong = clef__shares_wrong(o);
    if (wrong) return refuse_data(data, wrong);
    if (!batch_fits(data, o->batch < data->size ? o->batch : data->size)) return refuse_data(data, "a batch is too large");
    if (o->group && o->group->ctx != data->ctx)
        return refuse_data(data, "the group belongs to another context; each rank has its own");
    if (!clef__parts_fit(o)) {
        clef__fail(data->ctx, CLEF_INVALID,
                   "loader: parts is %d; it must be a power of two that the number of ranks, %d, divides, or 0", o->parts,
                   clef_group_size(o->group));
        return NULL;
    }
    clef__batches batches;
    clef__batches_of(&batches, data->size, o);
    if (clef_group_size(o->group) > 1 && clef__agree_on_batches(data->ctx, o->group, &batches) != CLEF_OK) return NULL;
    clef_loader *loader = clef__calloc(1, sizeof *loader);
    if (loader) loader->tensor = clef__calloc((size_t)data->n_fields, sizeof *loader->tensor);
    if (loader) loader->group = clef_group_size(o->group) > 1 ? o->group : NULL;
    if (!loader || !loader->tensor || !clef__shares_open(&loader->shares, o) ||
        !clef__filler_open(&loader->filler, data, &o->augment, o->seed, o->mean, o->std)) {
        if (loader) clef__filler_close(&loader->filler);
        if (loader) clef__free(loader->tensor);
        if (loader) clef__shares_close(&loader->shares);
        clef__free(loader);
        clef__fail(data->ctx, CLEF_MEMORY, "loader: out of memory");
        return NULL;
    }
    loader->ctx = data->ctx;
    loader->data = data;
    loader->seed = o->seed;
    loader->device = o->device;
    loader->shuffle = o->shuffle;
    loader->ordered = -1;
    plan_batches(loader, o);
    clef__shares_plan(&loader->shares, loader->size, loader->batches);
    loader->link = (clef__loader_link){.loader = loader, .close = clef_loader_close};
    clef__loader_register(data->ctx, &loader->link);
    return loader;
}

void clef_loader_close(clef_loader *loader) {
    if (!loader) return;
    halt(loader);
    clef__loader_forget(loader->ctx, &loader->link);
    clef__filler_close(&loader->filler);
    clef__shares_close(&loader->shares);
    clef__free(loader->tensor);
    clef__free(loader);
}

/* ---- batches ---- */
static slot *wait_for(clef_loader *loader, int64_t batch) {
    slot *s = &loader->slots[batch % loader->n_slots];
    pthread_mutex_lock(&loader->lock);
    while (s->holds != batch) pthread_cond_wait(&loader->done, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return s;
}

/* Gives the slot back, for the batch n_slots further on. */
static void take_slot(clef_loader *loader, slot *s) {
    pthread_mutex_lock(&loader->lock);
    s->holds = -1;
    loader->taken++;
    pthread_cond_signal(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

static clef_shape batched(int64_t n, clef_shape item) {
    clef_shape shape = {.rank = item.rank + 1, .dim = {n}};
    for (int d = 0; d < item.rank; d++) shape.dim[d + 1] = item.dim[d];
    return shape;
}

static bool make_tensors(clef_loader *loader, const slot *s, clef_batch *batch) {
    const clef_dataset *data = loader->data;
    clef_tensor **input = loader->tensor, **target = loader->tensor + data->n_inputs;
    for (int i = 0; i < data->n_fields; i++) {
        const clef__field *f = &data->field[i];
        clef_tensor *t = clef_from_host_on(loader->ctx, loader->device, batched(batch->size, f->shape), f->dtype, s->memory[i]);
        if (!t) return false;
        *(f->target ? target++ : input++) = t;
    }
    batch->n_inputs = data->n_inputs;
    batch->n_targets = data->n_fields - data->n_inputs;
    batch->inputs = loader->tensor;
    batch->targets = loader->tensor + data->n_inputs;
    batch->x = batch->inputs[0];
    batch->y = batch->n_targets ? batch->targets[0] : NULL;
    return true;
}

static bool begin_next_epoch(clef_loader *loader) {
    if (loader->running) pthread_mutex_lock(&loader->lock);
    loader->epoch++;
    loader->taken = 0;
    if (loader->running) pthread_mutex_unlock(&loader->lock);
    clef__set_share(loader->ctx, (clef__share){0});
    clef__shares_end_epoch(&loader->shares);
    return false;
}

/* Threads work on the epoch where the loader stands. */
static bool go(clef_loader *loader) {
    if (!loader->running) return start(loader);
    if (loader->ordered == loader->epoch) return true;
    put_in_order(loader); /* all of the last epoch was taken: the threads are idle */
    pthread_mutex_lock(&loader->lock);
    loader->claimed = loader->taken;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return true;
}

/* What is computed from now on is of this part of a batch, until the next. */
static void note_share(clef_loader *loader, clef__share share) {
    clef__set_share(loader->ctx, loader->group ? share : (clef__share){0});
    if (loader->group) clef__group_set_items(loader->group, share.items, share.all);
    clef__shares_count(&loader->shares, share.items);
}

/* Batches that were made ahead are made anew where shares change, which they do a few times in a run. */
static bool follow_shares(clef_loader *loader) {
    bool changed = false;
    if (clef__shares_measure(&loader->shares, &changed) != CLEF_OK) return false;
    if (!changed) return true;
    halt(loader);
    clef__shares_change(&loader->shares);
    return true;
}

bool clef_next(clef_loader *loader, clef_batch *batch) {
    if (batch) *batch = (clef_batch){0};
    if (!loader || !clef__usable(loader->ctx)) return false;
    if (!batch) {
        clef__fail(loader->ctx, CLEF_INVALID, "next: batch is NULL; give a clef_batch to fill");
        return false;
    }
    if (clef_end_step(loader->ctx) != CLEF_OK || clef_error_status(loader->ctx) != CLEF_OK) return false;
    if (loader->taken >= loader->batches) return begin_next_epoch(loader);
    if (!follow_shares(loader) || !go(loader)) return false;
    slot *s = wait_for(loader, loader->taken);
    batch->index = loader->taken;
    clef__share share = batch_share(loader, loader->taken);
    batch->size = share.items;
    batch->first = share.first;
    batch->all = share.all;
    batch->parts = loader->shares.parts;
    bool fetched = s->failed < 0;
    if (fetched && make_tensors(loader, s, batch)) {
        take_slot(loader, s);
        note_share(loader, share);
        return true;
    }
    int64_t item = s->failed;
    halt(loader); /* the loader stays where it is: after clef_clear_error the same batch is tried again */
    *batch = (clef_batch){0};
    if (!fetched)
        clef__fail(loader->ctx, CLEF_IO,
                   "loader: item %lld of batch %lld could not be fetched: the callback refused it or gave a class "
                   "of %lld or more",
                   (long long)item, (long long)loader->taken, (long long)loader->data->classes);
    return false;
}

int64_t clef_loader_batches(const clef_loader *loader) { return loader ? loader->batches : 0; }

clef_dataset *clef_loader_dataset(const clef_loader *loader) { return loader ? loader->data : NULL; }

clef_group *clef_loader_group(const clef_loader *loader) { return loader ? loader->group : NULL; }

int clef_loader_parts(const clef_loader *loader) { return loader ? loader->shares.parts : 0; }

int clef_loader_shares(const clef_loader *loader, int64_t *shares, int most) {
    if (!loader || !loader->group) return 0;
    int ranks = clef_group_size(loader->group);
    for (int r = 0; r < ranks && r < most; r++) shares[r] = clef__share_of_rank(&loader->shares, loader->size, r).items;
    return ranks;
}

bool clef__loader_measures(const clef_loader *loader) { return loader->shares.automatic; }

bool clef_loader_shares_fixed(const clef_loader *loader) { return loader && clef__shares_fixed(&loader->shares); }

clef_status clef_loader_set_shares(clef_loader *loader, const int64_t *shares, int n) {
    if (!loader) return CLEF_INVALID;
    halt(loader);
    clef_status status = clef__shares_wanted(&loader->shares, loader->ctx, shares, n);
    if (status == CLEF_OK) clef__shares_change(&loader->shares);
    return status;
}

/* `taken` and `epoch` change on the caller's thread only, so that reading them here needs no lock. */
clef_loader_state clef_loader_get(const clef_loader *loader) {
    if (!loader) return (clef_loader_state){0};
    return (clef_loader_state){.epoch = loader->epoch, .batch = loader->taken, .seed = loader->seed};
}

clef_status clef_loader_set(clef_loader *loader, clef_loader_state state) {
    if (!loader) return CLEF_INVALID;
    if (state.epoch < 0 || state.epoch >= UINT32_MAX || state.batch < 0 || state.batch > loader->batches)
        return clef__fail(loader->ctx, CLEF_INVALID, "loader: epoch %lld, batch %lld is no place to continue; it has %lld batches",
                          (long long)state.epoch, (long long)state.batch, (long long)loader->batches);
    halt(loader);
    loader->epoch = state.epoch;
    loader->taken = state.batch;
    loader->seed = loader->filler.seed = state.seed;
    return CLEF_OK;
}
