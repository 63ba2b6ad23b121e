/* Copies of a pipeline, two of two stages, with parts of unequal size of every batch: a tied weight, batches that are added up, zero 0 to 2 and a
   weight given late end as on one rank; each copy drops by its own items, and all ranks stand at the same random number afterwards.
   ctest: apart plain */
#include "../group/ranks.h"
#include <math.h>

enum { ITEMS = 30, BATCH = 8, WIDTH = 8, CLASSES = 3, MOST_VALUES = 512, STAGES = 2 };

typedef struct scene {
    bool adds_up, by_weight, late, drops;
    int zero;
    int n;
    float value[MOST_VALUES];
    uint64_t offset[4];          /* of random numbers, where each rank ends */
    char mask[4][8 * BATCH + 1]; /* of the first batch */
} scene;

enum { MASKS = 2 }; /* of the micro-batches of a step */

static clef_tensor *forward_dropout(clef_module *m, clef_tensor *x, void *user) {
    clef_tensor **kept = user, *y = clef_dropout(x, 0.5);
    bool dry = clef_set_dry_run(clef_module_context(m), true);
    clef_set_dry_run(clef_module_context(m), dry);
    int i = 0;
    while (i < MASKS && kept[i]) i++;
    if (i < MASKS && !dry) kept[i] = clef_keep(clef_ne_scalar(y, 0));
    return y;
}

static void note_masks(scene *c, int rank, clef_tensor *const *kept) {
    uint8_t bit[WIDTH * BATCH] = {0};
    int at = 0;
    for (int k = 0; k < MASKS && kept[k]; k++) {
        int n = (int)clef_numel(kept[k]);
        if (clef_read(kept[k], bit, (size_t)n)) return;
        for (int i = 0; i < n; i++) c->mask[rank][at++] = bit[i] ? '1' : '.';
    }
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    scene *c = user;
    int rank = clef_group_rank(all), size = clef_group_size(all), stages = size > 1 ? STAGES : 1;
    clef_group *row = clef_group_split(all, rank / stages, 0), *copies = clef_group_split(all, rank % stages, 0);
    clef_seed(ctx, 11);
    clef_tensor *kept[MASKS] = {NULL};
    clef_module *twice = clef_nn_linear(ctx, WIDTH, WIDTH, NULL);
    clef_module *first = c->drops ? clef_module_new(ctx, "drop", forward_dropout, kept) : clef_nn_tanh(ctx);
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(first, twice, clef_nn_linear(ctx, WIDTH, WIDTH, NULL), twice,
                                                        clef_nn_tanh(ctx), clef_nn_linear(ctx, WIDTH, CLASSES, NULL)));
    clef_pipeline *pipe = clef_pipeline_new(net, row, &(clef_pipeline_options){.micro_batches = 2, .cut = (int[]){2}});
    clef_optimizer *opt =
        clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.5, .group = size > 1 ? copies : NULL, .zero = c->zero});
    float x[ITEMS * WIDTH];
    int64_t y[ITEMS];
    for (int i = 0; i < ITEMS * WIDTH; i++) x[i] = c->drops ? 1 : sinf((float)i * 1.3f);
    for (int i = 0; i < ITEMS; i++) y[i] = i % CLASSES;
    clef_loader *data = clef_loader_open(clef_dataset_arrays(ctx, x, CLEF_SHAPE(WIDTH), y, ITEMS),
                                         &(clef_loader_options){.batch = BATCH, .group = copies, .shares = (int64_t[]){3, 1}});
    int step = 0;
    for (int epoch = 0; epoch < 2; epoch++)
        for (clef_batch b; clef_next(data, &b); step++) {
            double weight = clef_group_rank(copies) ? 1 : 3;
            if (c->by_weight && !c->late) clef_group_weight(copies, weight);
            if (clef_pipeline_step(pipe, b.x, b.y, clef_cross_entropy, NULL, NULL)) return clef_error_status(ctx);
            if (c->by_weight && c->late) clef_group_weight(copies, weight);
            if (step == 0) note_masks(c, rank, kept);
            if (c->adds_up && step % 2 == 0) continue;
            if (!c->by_weight) clef_pipeline_clip_grad_norm(pipe, 0.3);
            clef_step(opt);
        }
    c->offset[rank] = clef_random_get(ctx).offset;
    for (int i = 0; i < MASKS; i++) clef_release(kept[i]);
    if (clef_pipeline_gather(pipe, NULL)) return clef_error_status(ctx);
    for (int i = 0; i < clef_module_tensors(net) && rank == size - 1; i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        int n = (int)clef_numel(t);
        if (clef_read(t, c->value + c->n, (size_t)n * sizeof *c->value)) return clef_error_status(ctx);
        c->n += n;
    }
    return clef_error_status(ctx);
}

static void run(const char *devices, scene *c) {
    c->n = 0;
    if (clef_run_ranks_with(devices, &(clef_ranks_options){.timeout = 120}, run_rank, c)) COMPLAIN("%s", clef_error(NULL));
}

static void compare(const char *what, const scene *a, const scene *b) {
    double most = 0;
    for (int i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->value[i] - (double)b->value[i]));
    if (!a->n || a->n != b->n || !(most <= 1e-6))
        COMPLAIN("%s: %d and %d numbers, the largest difference %g", what, a->n, b->n, most);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    static scene one, four;
    for (int adds_up = 0; adds_up < 2; adds_up++) {
        one = (scene){.adds_up = adds_up};
        run("0", &one);
        for (int zero = 0; zero < 3; zero++) {
            char what[64];
            snprintf(what, sizeof what, "zero %d, %s", zero, adds_up ? "two batches in a step" : "one batch in a step");
            four = (scene){.adds_up = adds_up, .zero = zero};
            run("0,0,0,0", &four);
            compare(what, &four, &one);
        }
    }
    one = (scene){.by_weight = true}, four = (scene){.by_weight = true, .late = true};
    run("0,0,0,0", &one);
    run("0,0,0,0", &four);
    compare("a weight before the step, and one behind it", &four, &one);

    four = (scene){.drops = true};
    run("0,0,0,0", &four);
    for (int r = 1; r < 4; r++)
        if (four.offset[r] != four.offset[0]) COMPLAIN("rank %d ends at another random number than rank 0", r);
    /* ranks 0 and 2 have the first stage, six items and two */
    if (strlen(four.mask[0]) != 6 * WIDTH || strlen(four.mask[2]) != 2 * WIDTH)
        COMPLAIN("masks %s and %s", four.mask[0], four.mask[2]);
    for (int i = 0; i < 12; i++)
        if (!memcmp(four.mask[0] + i / 2 * WIDTH, four.mask[2] + i % 2 * WIDTH, WIDTH))
            COMPLAIN("item %d is dropped as %d of another copy", i / 2, i % 2);
    return complaints != 0;
}
