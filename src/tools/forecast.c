/* forecast.c — what a training step will take, and the largest batch that fits, found by dry runs. */
#include "tool.h"

enum { LARGEST = 1 << 20 };

static clef_tensor *random_batch(const forecast *f, int64_t batch) {
    clef_shape item = f->item, shape = {.rank = item.rank + 1, .dim = {batch}};
    for (int d = 0; d < item.rank; d++) shape.dim[d + 1] = item.dim[d];
    return f->tokens ? clef_randint(f->ctx, 0, f->tokens, shape) : clef_rand(f->ctx, shape);
}

static void step(const forecast *f, clef_tensor *x, int64_t batch) {
    clef_shape targets = f->tokens ? CLEF_SHAPE(batch, f->item.dim[0]) : CLEF_SHAPE(batch);
    clef_tensor *y = clef_zeros(f->ctx, targets, CLEF_I64);
    clef_backward(clef_cross_entropy(clef_forward(f->net, x), y, &(clef_loss_options){.classes_last = f->tokens > 0}));
    clef_step(f->optimizer);
}

/* x: computed before, or NULL for one that is made within the step, as one too large to have is.  on: of each device. */
static bool dry_step(const forecast *f, clef_tensor *x, int64_t batch, clef_plan_size *size, clef_plan_size *on) {
    clef_set_dry_run(f->ctx, true);
    step(f, x ? x : random_batch(f, batch), batch);
    bool ok = clef_plan_memory(f->ctx, size) == CLEF_OK && size->launches > 0;
    for (int d = 0; d < f->devices; d++) ok = clef_plan_memory_of(f->ctx, d, &on[d]) == CLEF_OK && ok;
    clef_set_dry_run(f->ctx, false);
    return ok;
}

static bool batch_fits(const forecast *f, int64_t batch) {
    clef_plan_size size, on[FORECAST_DEVICES];
    clef_device_info device;
    if (!dry_step(f, NULL, batch, &size, on)) {
        clef_clear_error(f->ctx); /* a tensor of its own is too large */
        return false;
    }
    for (int d = 0; d < f->devices; d++)
        if (!clef_context_device(f->ctx, d, &device) || (uint64_t)on[d].peak_bytes > device.global_bytes ||
            (uint64_t)on[d].temporary_bytes > device.max_alloc_bytes)
            return false;
    return true;
}

/* To within a sixteenth; 0 if not even a small batch fits. */
static int64_t largest_batch(const forecast *f) {
    int64_t good = 0, bad = 2;
    while (bad <= LARGEST && batch_fits(f, bad)) good = bad, bad *= 2;
    while (good && bad <= LARGEST && bad - good > (good + 15) / 16) {
        int64_t middle = good + (bad - good) / 2;
        if (batch_fits(f, middle)) good = middle;
        else bad = middle;
    }
    return good;
}

bool forecast_make(forecast *f) {
    clef_plan_size on[FORECAST_DEVICES];
    f->devices = clef_context_device_count(f->ctx);
    if (f->devices > FORECAST_DEVICES) f->devices = FORECAST_DEVICES;
    step(f, random_batch(f, 2), 2); /* once in earnest, so that parameters and optimizer state lie as they will */
    clef_tensor *x = clef_keep(random_batch(f, f->batch));
    if (clef_eval(x) != CLEF_OK || !dry_step(f, x, f->batch, &f->size, on)) return false;
    clef_release(x);
    for (int d = 0; d < f->devices; d++) f->peak[d] = (double)on[d].peak_bytes;
    f->largest = largest_batch(f);
    return clef_error_status(f->ctx) == CLEF_OK;
}

static double mib(int64_t bytes) { return (double)bytes / (1 << 20); }

void forecast_print(const forecast *f, bool as_json) {
    const clef_plan_size *s = &f->size;
    if (as_json) {
        json j = json_begin(stdout);
        json_text(&j, "event", "plan");
        if (f->group) json_whole(&j, "rank", clef_group_rank(f->group));
        json_whole(&j, "batch", f->batch);
        json_whole(&j, "peak_bytes", s->peak_bytes);
        json_numbers(&j, "peak_bytes_of_devices", f->peak, f->devices);
        json_whole(&j, "input_bytes", s->input_bytes);
        json_whole(&j, "result_bytes", s->result_bytes);
        json_whole(&j, "temporary_bytes", s->temporary_bytes);
        json_whole(&j, "least_temporary_bytes", s->least_temporary_bytes);
        json_whole(&j, "launches", s->launches);
        json_number(&j, "flops", s->flops);
        json_number(&j, "bytes", s->bytes);
        json_whole(&j, "largest_batch", f->largest);
        json_end(&j);
        return;
    }
    if (f->group) printf("\n%s:", clef_group_rank_name(f->group, clef_group_rank(f->group)));
    printf("\nA training step with batch %lld: %.1f MiB at most on the device%s\n"
           "    %.1f MiB parameters, optimizer state and batch, %.1f MiB new, %.1f MiB temporary (no less than %.1f)\n"
           "    %.2f GFLOP, %lld launches\n",
           (long long)f->batch, mib(s->peak_bytes), f->devices > 1 ? "s" : "", mib(s->input_bytes), mib(s->result_bytes),
           mib(s->temporary_bytes), mib(s->least_temporary_bytes), s->flops / 1e9, (long long)s->launches);
    for (int d = 0; f->devices > 1 && d < f->devices; d++) printf("    device %d: %.1f MiB at most\n", d, f->peak[d] / (1 << 20));
    if (f->largest) printf("Largest batch that fits %s: about %lld\n", tool_device_name(f->ctx), (long long)f->largest);
    else printf("Not even a batch of 2 fits %s\n", tool_device_name(f->ctx));
}
