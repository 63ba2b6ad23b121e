/* Work that is planned for a GPU that is not here: its launches are told, nothing is computed, and steps follow each other.
   ctest: cost=5 plain */
#include <clef.h>
#include <criterion/criterion.h>
#include <string.h>

static clef_context *ctx;

typedef struct seen {
    int launches, tiles, matrices, prepared;
    double flops, bytes;
    size_t items;
} seen;

static void note(void *user, const clef_planned_launch *launch) {
    seen *s = user;
    s->launches++;
    s->tiles += strncmp(launch->kernel, "tile", 4) == 0; /* in stages or not */
    s->matrices += strncmp(launch->kernel, "matrix", strlen("matrix")) == 0;
    s->prepared += launch->prepares;
    s->flops += launch->flops;
    s->bytes += launch->bytes;
    s->items = launch->global[0] * launch->global[1] * launch->global[2];
}

static void open_for(const char *key) {
    ctx = clef_open(&(clef_options){.plan_for = key});
    cr_assert(ctx, "%s", clef_error(NULL));
}

/* Of one call in a dry run. */
static seen of(clef_tensor *t) {
    seen s = {0};
    cr_assert(!clef_set_dry_run(ctx, true));
    clef_on_planned_launch(ctx, note, &s);
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    clef_on_planned_launch(ctx, NULL, NULL);
    clef_set_dry_run(ctx, false);
    return s;
}

static clef_tensor *made(clef_shape shape, clef_dtype dtype) {
    clef_tensor *t = clef_keep(clef_to(clef_randn(ctx, shape), dtype));
    cr_assert(t && clef_end_step(ctx) == CLEF_OK, "%s", clef_error(ctx));
    return t;
}

static void close_it(void) {
    cr_assert_eq(clef_error_status(ctx), CLEF_OK, "%s", clef_error(ctx));
    clef_close(ctx);
}

Test(plan_for, another_word_is_refused_with_all_keys) {
    cr_assert(!clef_open(&(clef_options){.plan_for = "gpu"}));
    cr_assert_eq(clef_error_status(NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(NULL), "plan_for knows no device \"gpu\"; there are: v100, a100"), "%s", clef_error(NULL));
    cr_assert(strstr(clef_error(NULL), "adreno"), "%s", clef_error(NULL));
}

Test(plan_for, the_device_has_the_facts_of_its_row) {
    clef_device_info info;
    open_for("A100");
    cr_assert(clef_context_device(ctx, 0, &info));
    cr_assert_str_eq(info.type, "gpu");
    cr_assert_str_eq(info.name, "NVIDIA A100-SXM4-80GB");
    cr_assert_eq(info.compute_units, 108);
    close_it();
}

/* 1000 rows and columns are 8 × 8 tiles of 128 on each side: what is done in vain counts. */
Test(plan_for, a_product_is_one_launch_of_tiles) {
    open_for("a100");
    seen s = of(clef_matmul(made(CLEF_SHAPE(4000, 1024), CLEF_F32), made(CLEF_SHAPE(1024, 4000), CLEF_F32)));
    cr_assert(s.launches == 1 && s.tiles == 1, "%d launches, %d tiles", s.launches, s.tiles);
    cr_assert_eq(s.flops, 2.0 * 4096 * 4096 * 1024, "%g", s.flops);
    cr_assert_eq(s.bytes, 4.0 * (2 * 4000 * 1024 + 4000 * 4000), "%g", s.bytes);
    cr_assert_eq(s.items, 32 * 32 * 256);
    close_it();
}

Test(plan_for, half_types_go_to_matrix_units_where_the_row_has_them) {
    const char *const keys[] = {"v100", "a100", "h100", "mi100", "mali"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        open_for(keys[i]);
        seen s = of(clef_matmul(made(CLEF_SHAPE(1024, 1024), CLEF_F16), made(CLEF_SHAPE(1024, 1024), CLEF_F16)));
        cr_assert_eq(s.matrices > 0, i == 1 || i == 2, "%s: %d", keys[i], s.matrices);
        close_it();
    }
}

Test(plan_for, an_operand_that_is_named_twice_moves_once) {
    open_for("h100");
    clef_tensor *x = made(CLEF_SHAPE(1024, 1024), CLEF_F32);
    seen s = of(clef_mul(clef_exp(x), clef_sin(x)));
    cr_assert_eq(s.launches, 1);
    cr_assert_eq(s.bytes, 2.0 * 4 * 1024 * 1024, "%g", s.bytes);
    close_it();
}

/* Parameters are updated in place step after step; nothing of them can be read. */
Test(plan_for, training_steps_follow_each_other) {
    open_for("mi100");
    clef_module *net = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    clef_optimizer *optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9});
    clef_tensor *x = made(CLEF_SHAPE(8, 1, 28, 28), CLEF_F32), *y = clef_keep(clef_zeros(ctx, CLEF_SHAPE(8), CLEF_I64));
    seen s[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        bool dry = i == 2;
        if (dry) clef_set_dry_run(ctx, true);
        clef_on_planned_launch(ctx, note, &s[i]);
        cr_assert_eq(clef_backward(clef_cross_entropy(clef_forward(net, x), y, NULL)), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_step(optimizer), CLEF_OK, "%s", clef_error(ctx));
    }
    clef_set_dry_run(ctx, false);
    cr_assert(s[0].launches == 0 && s[1].launches == 0, "only dry runs tell");
    cr_assert(s[2].launches > 10 && s[2].tiles > 3 && s[2].prepared == 0, "%d, %d, %d", s[2].launches, s[2].tiles, s[2].prepared);
    close_it();
}

/* Weights of inference are packed once, if at all, and told so; reading a value is an error, not a number. */
Test(plan_for, no_value_can_be_read) {
    float value = 7;
    open_for("h100");
    clef_tensor *x = clef_keep(clef_ones(ctx, CLEF_SHAPE(1), CLEF_F32)),
                *host = clef_from_host(ctx, CLEF_SHAPE(1), CLEF_F32, &value);
    cr_assert_eq(clef_eval(clef_exp(x)), CLEF_OK);
    cr_assert_eq(clef_read(x, &value, sizeof value), CLEF_STATE);
    cr_assert(strstr(clef_error(ctx), "read: work is only planned, for h100"), "%s", clef_error(ctx));
    cr_assert_eq(clef_read(host, &value, sizeof value), CLEF_STATE);
    cr_assert_eq(value, 7);
    clef_clear_error(ctx);
    close_it();
}
