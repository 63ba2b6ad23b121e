/* Tensors on a device to safetensors files and back, through the public functions. */
#include "io_context.h"

TestSuite(safetensors, .init = setup, .fini = teardown);

Test(safetensors, every_dtype_comes_back_bit_for_bit) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL, CLEF_F64};
    clef_device_info info;
    cr_assert(clef_context_device(ctx, 0, &info));
    int n = info.f64 ? 8 : 7;
    clef_named_tensor tensors[8];
    uint8_t bytes[8][15 * 8];
    char names[8][16];
    for (int i = 0; i < n; i++) {
        size_t element = clef_dtype_size(dtypes[i]);
        for (size_t b = 0; b < 15 * element; b++)
            bytes[i][b] = dtypes[i] == CLEF_BOOL ? b % 2 : (uint8_t)(b * 37 + (size_t)i * 11 + 5);
        /* Small exponents keep clear of NaN, whose payload a device may change. */
        for (size_t b = element - 1; b < 15 * element; b += element)
            if (dtypes[i] != CLEF_BOOL) bytes[i][b] &= 0x3F;
        snprintf(names[i], sizeof names[i], "t.%s", clef_dtype_name(dtypes[i]));
        tensors[i] = (clef_named_tensor){names[i], clef_from_host(ctx, CLEF_SHAPE(3, 5), dtypes[i], bytes[i]), false};
        cr_assert_not_null(tensors[i].tensor, "%s", clef_error(ctx));
    }
    const char *path = io_path(dir, "all.safetensors");
    const char *metadata[] = {"format", "pt", "odd \"key\"\n", "\xf0\x9f\x99\x82 \\ \t", NULL};
    cr_assert_eq(clef_safetensors_write(ctx, path, tensors, n, metadata), CLEF_OK, "%s", clef_error(ctx));
    clef_safetensors *file = clef_safetensors_open(ctx, path);
    cr_assert_not_null(file, "%s", clef_error(ctx));
    cr_expect_eq(clef_safetensors_count(file), n);
    cr_expect_str_eq(clef_safetensors_metadata(file, "odd \"key\"\n"), "\xf0\x9f\x99\x82 \\ \t");
    cr_expect_str_eq(clef_safetensors_metadata(file, "format"), "pt");
    cr_expect_null(clef_safetensors_metadata(file, "none"));
    cr_expect_not(clef_safetensors_find(file, "t", NULL));
    for (int i = 0; i < n; i++) {
        int at = -1;
        uint8_t back[15 * 8];
        cr_assert(clef_safetensors_find(file, names[i], &at));
        cr_expect_str_eq(clef_safetensors_name(file, at), names[i]);
        cr_expect(clef_shape_equal(clef_safetensors_shape(file, at), CLEF_SHAPE(3, 5)));
        cr_expect_eq(clef_safetensors_dtype(file, at), dtypes[i]);
        clef_tensor *t = clef_safetensors_tensor(file, at);
        cr_assert_eq(clef_read(t, back, 15 * clef_dtype_size(dtypes[i])), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_arr_eq(back, bytes[i], 15 * clef_dtype_size(dtypes[i]), "%s", names[i]);
    }
    clef_safetensors_close(file);
}

Test(safetensors, scalars_empties_and_expressions) {
    clef_tensor *sum = clef_add(clef_full(ctx, CLEF_SHAPE(2, 3), CLEF_F32, 1.5), clef_arange(ctx, 0, 3, 1, CLEF_F32));
    clef_named_tensor tensors[] = {{"scalar", clef_scalar(ctx, 7), false},
                                   {"empty", clef_zeros(ctx, CLEF_SHAPE(0, 4), CLEF_F32), false},
                                   {"transposed", clef_transpose(sum, 0, 1), false}};
    const char *path = io_path(dir, "x.safetensors");
    cr_assert_eq(clef_safetensors_write(ctx, path, tensors, 3, NULL), CLEF_OK, "%s", clef_error(ctx));
    clef_safetensors *file = clef_safetensors_open(ctx, path);
    cr_assert_not_null(file, "%s", clef_error(ctx));
    int at;
    float values[6];
    cr_assert(clef_safetensors_find(file, "transposed", &at));
    cr_assert_eq(clef_read(clef_safetensors_tensor(file, at), values, sizeof values), CLEF_OK, "%s", clef_error(ctx));
    static const float expected[] = {1.5f, 1.5f, 2.5f, 2.5f, 3.5f, 3.5f};
    cr_expect_arr_eq(values, expected, sizeof values);
    cr_assert(clef_safetensors_find(file, "scalar", &at));
    cr_expect_eq(clef_safetensors_shape(file, at).rank, 0);
    cr_expect_eq(clef_item(clef_safetensors_tensor(file, at)), 7);
    cr_assert(clef_safetensors_find(file, "empty", &at));
    cr_expect_eq(clef_numel(clef_safetensors_tensor(file, at)), 0);
    cr_expect_str_eq(clef_error(ctx), "");
}

Test(safetensors, open_file_outlives_its_replacement_and_its_user) {
    const char *path = io_path(dir, "x.safetensors");
    clef_named_tensor one = {"a", clef_full(ctx, CLEF_SHAPE(4), CLEF_F32, 1), false};
    cr_assert_eq(clef_safetensors_write(ctx, path, &one, 1, NULL), CLEF_OK, "%s", clef_error(ctx));
    clef_safetensors *a = clef_safetensors_open(ctx, path), *b = clef_safetensors_open(ctx, path);
    clef_safetensors *c = clef_safetensors_open(ctx, path);
    one.tensor = clef_full(ctx, CLEF_SHAPE(400), CLEF_F32, 2);
    cr_assert_eq(clef_safetensors_write(ctx, path, &one, 1, NULL), CLEF_OK, "%s", clef_error(ctx));
    clef_safetensors_close(b);
    float values[4];
    cr_assert_eq(clef_read(clef_safetensors_tensor(a, 0), values, sizeof values), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(values[3], 1);
    clef_safetensors_close(c);
    clef_safetensors_close(NULL);
    /* a is left to clef_close */
}

Test(safetensors, errors_are_one_line_and_lose_nothing) {
    const char *path = io_path(dir, "x.safetensors");
    clef_named_tensor tensors[] = {{"a", clef_zeros(ctx, CLEF_SHAPE(4), CLEF_F32), false}, {"b", NULL, false}};
    cr_assert_eq(clef_safetensors_write(ctx, path, tensors, 1, NULL), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_safetensors_write(ctx, path, tensors, 2, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "safetensors_write: ");
    cr_expect_eq(clef_safetensors_write(ctx, NULL, tensors, 1, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "no path");
    cr_expect_eq(clef_safetensors_write(ctx, io_path(dir, "none/x"), tensors, 1, NULL), CLEF_IO);
    expect_error(ctx, CLEF_IO, "No such file");
    cr_expect_null(clef_safetensors_open(ctx, io_path(dir, "none")));
    expect_error(ctx, CLEF_IO, "No such file");
    cr_expect_null(clef_safetensors_open(ctx, NULL));
    expect_error(ctx, CLEF_INVALID, "no path");
    cr_expect_null(clef_safetensors_open(NULL, path));
    clef_safetensors *file = clef_safetensors_open(ctx, path);
    cr_assert_not_null(file, "%s", clef_error(ctx));
    cr_expect_null(clef_safetensors_tensor(file, 1));
    expect_error(ctx, CLEF_INVALID, "tensor 1 was asked for, but it has 1");
    cr_expect_null(clef_safetensors_name(file, -1));
    cr_expect_null(clef_safetensors_tensor(NULL, 0));
    io_bytes bytes = io_slurp(path);
    io_spit(io_path(dir, "cut"), bytes.data, bytes.size - 1);
    cr_expect_null(clef_safetensors_open(ctx, io_path(dir, "cut")));
    expect_error(ctx, CLEF_FORMAT, "outside the file's data");
    free(bytes.data);
}
