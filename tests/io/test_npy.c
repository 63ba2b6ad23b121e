/* Tensors to .npy and back. */
#include "io_context.h"

TestSuite(npy, .init = setup, .fini = teardown);

Test(npy, round_trip) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
    const clef_shape shapes[] = {CLEF_SCALAR, CLEF_SHAPE(5), CLEF_SHAPE(2, 3), CLEF_SHAPE(0, 3),
                                 CLEF_SHAPE(1, 2, 1, 3, 1, 1, 1, 2)};
    const char *path = io_path(dir, "t.npy");
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            uint8_t bytes[12 * 8], back[12 * 8];
            size_t size = (size_t)clef_shape_numel(shapes[s]) * clef_dtype_size(dtypes[d]);
            for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = dtypes[d] == CLEF_BOOL ? i % 3 == 0 : (uint8_t)(i & 0x3F);
            cr_assert_eq(clef_npy_write(clef_from_host(ctx, shapes[s], dtypes[d], bytes), path), CLEF_OK, "%s", clef_error(ctx));
            clef_tensor *t = clef_npy_read(ctx, path);
            cr_assert_not_null(t, "%s", clef_error(ctx));
            cr_expect_eq(clef_tensor_dtype(t), dtypes[d]);
            cr_expect(clef_shape_equal(clef_tensor_shape(t), shapes[s]));
            if (size == 0) continue;
            cr_assert_eq(clef_read(t, back, size), CLEF_OK, "%s", clef_error(ctx));
            cr_expect_arr_eq(back, bytes, size);
        }
}

Test(npy, errors) {
    const char *path = io_path(dir, "t.npy");
    cr_expect_eq(clef_npy_write(clef_zeros(ctx, CLEF_SHAPE(2), CLEF_BF16), path), CLEF_DTYPE);
    cr_expect(strstr(clef_error(ctx), "NumPy has no bf16") != NULL, "%s", clef_error(ctx));
    clef_clear_error(ctx);
    cr_expect_null(clef_npy_read(ctx, path));
    cr_expect(strstr(clef_error(ctx), "npy_read: ") && strstr(clef_error(ctx), "No such file"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    io_spit(path, "\x93NUMPY nonsense", 15);
    cr_expect_null(clef_npy_read(ctx, path));
    cr_expect_eq(clef_error_status(ctx), CLEF_UNSUPPORTED, "%s", clef_error(ctx));
    cr_expect_eq(clef_npy_write(NULL, path), CLEF_INVALID);
    cr_expect_null(clef_npy_read(NULL, path));
    cr_expect_eq(io_count(dir), 1);
}
