/* Modules to files and back: names, shapes, dtypes; a misfit changes nothing. */
#include "io_context.h"

TestSuite(model, .init = setup, .fini = teardown);

static clef_module *small(void) {
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 3, 5, NULL), clef_nn_relu(ctx), clef_nn_linear(ctx, 5, 2, NULL)));
}

/* All values of a module, one after another. */
static float *values_of(clef_module *module, size_t *n) {
    static float values[2][4096];
    static int next;
    float *out = values[next++ % 2];
    *n = 0;
    for (int i = 0; i < clef_module_tensors(module); i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        size_t numel = (size_t)clef_numel(t.tensor);
        if (clef_tensor_dtype(t.tensor) != CLEF_F32) continue;
        cr_assert(*n + numel <= 4096);
        cr_assert_eq(clef_read(t.tensor, out + *n, numel * 4), CLEF_OK, "%s", clef_error(ctx));
        *n += numel;
    }
    return out;
}

Test(model, round_trip) {
    const char *path = io_path(dir, "net.safetensors");
    size_t n, m;
    clef_module *net = small(), *other = small();
    float *before = values_of(net, &n);
    cr_assert_eq(n, 3 * 5 + 5 + 5 * 2 + 2);
    cr_assert_eq(clef_save(net, path), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_load(other, path), CLEF_OK, "%s", clef_error(ctx));
    float *after = values_of(other, &m);
    cr_expect_eq(m, n);
    cr_expect_arr_eq(after, before, n * sizeof *after);
    cr_expect(clef_requires_grad(clef_parameter(other, "0.weight")));
    clef_safetensors *file = clef_safetensors_open(ctx, path);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};
        cr_expect(clef_safetensors_find(file, names[i], NULL), "%s", names[i]);
    }
    cr_expect_eq(clef_safetensors_count(file), 4);
}

Test(model, buffers_travel_too) {
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, 2, NULL)));
    clef_module *other = clef_sequential(ctx, CLEF_LAYERS(clef_nn_batch_norm2d(ctx, 2, NULL)));
    for (int i = 0; i < 3; i++) {
        clef_forward(net, clef_full(ctx, CLEF_SHAPE(2, 2, 2, 2), CLEF_F32, 5));
        clef_end_step(ctx);
    }
    const char *path = io_path(dir, "bn.safetensors");
    cr_assert_eq(clef_save(net, path), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_load(other, path), CLEF_OK, "%s", clef_error(ctx));
    size_t n, m;
    float *a = values_of(net, &n), *b = values_of(other, &m);
    cr_expect_eq(n, m);
    cr_expect_arr_eq(a, b, n * sizeof *a);
    for (int i = 0; i < clef_module_tensors(other); i++)
        if (clef_tensor_dtype(clef_module_tensor(other, i).tensor) == CLEF_I64) {
            int64_t batches = 0;
            cr_assert_eq(clef_read(clef_module_tensor(other, i).tensor, &batches, 8), CLEF_OK);
            cr_expect_eq(batches, 3);
        }
}

/* Loads a hand-made file into a fresh module; it must refuse with these words and leave every value alone. */
static void expect_refusal(const clef_named_tensor *tensors, int n_tensors, clef_status status, const char *said) {
    const char *path = io_path(dir, "misfit.safetensors");
    clef_module *net = small();
    size_t n, m;
    float *before = values_of(net, &n);
    cr_assert_eq(clef_safetensors_write(ctx, path, tensors, n_tensors, NULL), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_load(net, path), status);
    cr_expect(strstr(clef_error(ctx), said) && strstr(clef_error(ctx), "load: "), "\"%s\" is not in \"%s\"", said, clef_error(ctx));
    cr_expect_null(strchr(clef_error(ctx), '\n'));
    clef_clear_error(ctx);
    float *after = values_of(net, &m);
    cr_expect_arr_eq(after, before, n * sizeof *after);
}

Test(model, misfits_change_nothing) {
    clef_named_tensor t[5] = {{"0.weight", clef_ones(ctx, CLEF_SHAPE(5, 3), CLEF_F32), false},
                              {"0.bias", clef_ones(ctx, CLEF_SHAPE(5), CLEF_F32), false},
                              {"2.weight", clef_ones(ctx, CLEF_SHAPE(2, 5), CLEF_F32), false},
                              {"2.bias", clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), false},
                              {"3.bias", clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), false}};
    for (int i = 0; i < 5; i++) clef_keep(t[i].tensor);
    expect_refusal(t, 3, CLEF_FORMAT, "has no tensor \"2.bias\"");
    expect_refusal(t, 5, CLEF_FORMAT, "\"3.bias\" that nothing here wants");
    t[3].name = "2.bais";
    expect_refusal(t, 4, CLEF_FORMAT, "has no tensor \"2.bias\"; the nearest is \"2.bais\"");
    t[3].name = "2.bias";
    clef_tensor *bias = t[3].tensor;
    t[3].tensor = clef_keep(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32));
    expect_refusal(t, 4, CLEF_SHAPE, "\"2.bias\" is [3] in the file but [2] here");
    t[3].tensor = clef_keep(clef_ones(ctx, CLEF_SHAPE(2, 1), CLEF_F32));
    expect_refusal(t, 4, CLEF_SHAPE, "\"2.bias\" is [2,1] in the file but [2] here");
    t[3].tensor = clef_keep(clef_ones(ctx, CLEF_SHAPE(2), CLEF_I32));
    expect_refusal(t, 4, CLEF_DTYPE, "\"2.bias\" is i32 in the file but f32 here");
    t[3].tensor = bias;
    clef_module *net = small();
    const char *path = io_path(dir, "misfit.safetensors");
    cr_assert_eq(clef_safetensors_write(ctx, path, t, 4, NULL), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_load(net, path), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_load(net, io_path(dir, "none")), CLEF_IO);
    cr_expect(strstr(clef_error(ctx), "No such file") != NULL, "%s", clef_error(ctx));
    cr_expect_eq(clef_load(NULL, path), CLEF_INVALID);
    cr_expect_eq(clef_save(NULL, path), CLEF_INVALID);
}

Test(model, floating_point_formats_are_converted) {
    static const uint16_t half[] = {0x3C00, 0xC000, 0x0001}, brain[] = {0x3F80, 0xC000, 0x3380};
    static const double wide[] = {1, -2, 0x1p-24};
    static const float expected[] = {1, -2, 0x1p-24f};
    static const struct {
        const char *dtype;
        const void *data;
        size_t bytes;
    } kinds[] = {{"F16", half, sizeof half}, {"BF16", brain, sizeof brain}, {"F64", wide, sizeof wide}};
    for (int i = 0; i < 3; i++) {
        char header[256];
        uint8_t data[2 * sizeof wide];
        size_t n = kinds[i].bytes;
        memcpy(data, kinds[i].data, n);
        memcpy(data + n, kinds[i].data, n);
        snprintf(header, sizeof header,
                 "{\"0.bias\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]},"
                 "\"0.weight\":{\"dtype\":\"%s\",\"shape\":[3,1],\"data_offsets\":[%zu,%zu]}}",
                 kinds[i].dtype, n, kinds[i].dtype, n, 2 * n);
        io_bytes file = io_safetensors(header, data, 2 * n);
        io_spit(io_path(dir, "typed"), file.data, file.size);
        free(file.data);
        clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 1, 3, NULL)));
        cr_assert_eq(clef_load(net, io_path(dir, "typed")), CLEF_OK, "%s", clef_error(ctx));
        size_t count;
        float *values = values_of(net, &count);
        cr_assert_eq(count, 6);
        cr_expect_arr_eq(values, expected, sizeof expected, "%s", kinds[i].dtype);
        cr_expect_arr_eq(values + 3, expected, sizeof expected, "%s", kinds[i].dtype);
    }
}

Test(model, a_checkpoint_serves_as_a_model) {
    clef_module *net = small(), *other = small();
    clef_optimizer *adam = clef_adam(net, NULL);
    const char *path = io_path(dir, "last.ckpt");
    cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.module = net, .optimizer = adam}), CLEF_OK, "%s",
                 clef_error(ctx));
    cr_assert_eq(clef_load(other, path), CLEF_OK, "%s", clef_error(ctx));
    size_t n, m;
    float *a = values_of(net, &n), *b = values_of(other, &m);
    cr_expect_arr_eq(a, b, n * sizeof *a);
}

/* "0" fits; "2" has another shape; the file has "0.bias" too little and "9.extra" too much. */
static const char *misfit(void) {
    const char *path = io_path(dir, "misfit.safetensors");
    clef_named_tensor tensors[] = {{"0.weight", clef_full(ctx, CLEF_SHAPE(5, 3), CLEF_F16, 4), false},
                                   {"2.weight", clef_full(ctx, CLEF_SHAPE(3, 5), CLEF_F32, 5), false},
                                   {"2.bias", clef_full(ctx, CLEF_SHAPE(2), CLEF_I32, 6), false},
                                   {"9.extra", clef_full(ctx, CLEF_SHAPE(1), CLEF_F32, 7), false}};
    cr_assert_eq(clef_safetensors_write(ctx, path, tensors, 4, NULL), CLEF_OK, "%s", clef_error(ctx));
    return path;
}

static void expect_lists(const clef_load_result *r, int n_loaded) {
    cr_assert(r->n_missing == 1 && r->n_unexpected == 1 && r->n_mismatched == 2);
    cr_expect_str_eq(r->missing[0], "0.bias");
    cr_expect_str_eq(r->unexpected[0], "9.extra");
    cr_expect_str_eq(r->mismatched[0], "2.weight");
    cr_expect_str_eq(r->mismatched[1], "2.bias");
    cr_expect_eq(r->n_loaded, n_loaded);
}

Test(model, what_fits_can_be_loaded_alone) {
    const char *path = misfit();
    clef_module *net = small();
    clef_load_result r;
    size_t n, m;
    float before[64], *now = values_of(net, &n);
    memcpy(before, now, n * sizeof *now);
    cr_expect_eq(clef_load_with(net, path, NULL, &r), CLEF_FORMAT);
    expect_error(ctx, CLEF_FORMAT, "has no tensor \"0.bias\"");
    expect_lists(&r, 0);
    cr_expect_arr_eq(values_of(net, &m), before, n * sizeof *before, "nothing changes");
    cr_assert_eq(clef_load_with(net, path, &(clef_load_options){.partial = true}, &r), CLEF_OK, "%s", clef_error(ctx));
    expect_lists(&r, 1);
    now = values_of(net, &m);
    for (size_t i = 0; i < n; i++) cr_expect_eq(now[i], i < 15 ? 4 : before[i], "value %d", (int)i);
    cr_expect(clef_requires_grad(clef_parameter(net, "0.weight")));
    cr_assert_eq(clef_load_with(small(), path, &(clef_load_options){.partial = true}, NULL), CLEF_OK);
}

Test(model, partial_loading_finds_a_checkpoint_and_no_damage) {
    const char *path = io_path(dir, "net.ckpt");
    clef_module *net = small(),
                *more = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 3, 5, NULL), clef_nn_linear(ctx, 5, 4, NULL)));
    clef_optimizer *adam = clef_adam(net, NULL);
    cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.module = net, .optimizer = adam}), CLEF_OK);
    clef_load_result r;
    cr_assert_eq(clef_load_with(more, path, &(clef_load_options){.partial = true}, &r), CLEF_OK, "%s", clef_error(ctx));
    cr_assert(r.n_loaded == 2 && r.n_missing == 2 && r.n_unexpected == 2 && r.n_mismatched == 0);
    cr_expect_str_eq(r.missing[0], "1.weight");
    cr_expect_str_eq(r.unexpected[0], "2.weight");
    FILE *file = fopen(path, "r+b");
    cr_assert(file && !fseek(file, -3, SEEK_END));
    int byte = fgetc(file);
    fseek(file, -3, SEEK_END);
    fputc(byte ^ 1, file);
    fclose(file);
    cr_expect_eq(clef_load_with(more, path, &(clef_load_options){.partial = true}, &r), CLEF_FORMAT);
    cr_expect(r.n_loaded == 0 && r.n_missing == 0 && !r.missing);
    expect_error(ctx, CLEF_FORMAT, "checksum");
}
