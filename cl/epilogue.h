/* epilogue.h — what a product, a convolution or layer norm does with its results before the ops that follow would read them:

       y = leak(relu(gate(scale · v + extra)))      gate: 0 where extra is not positive, the gradient of relu
                                                    leak: scale · v where v is not positive, leaky relu

   `ops` says which of these, as the sum of bits of epilogue_ops.h, in their order and with one use of `scale`; each rounds to what
   memory holds, as the op does by itself.  `extra` lies as the results do.  Before it is included RESULT names the dtype of results,
   W the lanes of a vector.

   A bias comes first of all, BIASED(n, v, at) its elements from `at` on.  It goes in when the sum is whole, and nothing is rounded yet:
   rounding errors are of the sum's size then, not of every term's.  BIAS(n, at) is the bias, or zeros where there is none. */
#include "epilogue_ops.h"

#define KEPT_f32(n, v) (v)
#define KEPT_f64(n, v) (v)
#define KEPT_i32(n, v) (v)
#define KEPT_i64(n, v) (v)
#define KEPT_u8(n, v) (v)
#define KEPT_bool(n, v) (v)
#define KEPT_f16(n, v) ROUND_f16(n, v)
#define KEPT_bf16(n, v) ROUND_bf16(n, v)

#define EPILOGUE(n, v, extra, at) OF_PART(CAT(epilogue_, n))(v, extra, at, scale, ops)

#define BIASED(n, v, at) (ops & EPILOGUE_BIAS ? (v) + LOAD(RESULT, n, bias, at) : (v))
#define BIAS(n, at) (ops & EPILOGUE_BIAS ? LOAD(RESULT, n, bias, at) : (VEC(COMPUTE(RESULT), n))(0))

#define DEFINE_EPILOGUE_(dt, n)                                                                        \
    static VEC(COMPUTE(dt), n) OF_PART(epilogue_##n)(VEC(COMPUTE(dt), n) v, __global const MEMORY(dt) *extra, long at, \
                                                     COMPUTE(dt) scale, int ops) {                     \
        const VEC(COMPUTE(dt), n) zero = (VEC(COMPUTE(dt), n))(0);                                     \
        v = CAT(KEPT_, dt)(n, v);                                                                      \
        if (ops & EPILOGUE_SCALE) v = CAT(KEPT_, dt)(n, v * scale);                                     \
        if (ops & EPILOGUE_ADD) v = CAT(KEPT_, dt)(n, v + LOAD(dt, n, extra, at));                      \
        if (ops & EPILOGUE_GATE) v = LOAD(dt, n, extra, at) <= zero ? zero : v;                         \
        if (ops & EPILOGUE_RELU) v = v <= zero ? zero : v;                                              \
        if (ops & EPILOGUE_LEAK) v = v > zero ? v : CAT(KEPT_, dt)(n, v * scale);                       \
        return v;                                                                                      \
    }
#define DEFINE_EPILOGUE(dt, n) DEFINE_EPILOGUE_(dt, n)
DEFINE_EPILOGUE(RESULT, 1)
#if W > 1
DEFINE_EPILOGUE(RESULT, W)
#endif

/* The same for `count` results that were just written, from `to` on. */
__attribute__((unused)) BY_ITSELF static void epilogue_row(__global MEMORY(RESULT) *to, __global const MEMORY(RESULT) *extra,
                                                           long stride, int count, COMPUTE(RESULT) scale, int ops) {
    int j = 0;
    PLAIN_LOOP
    for (; stride == 1 && j + W <= count; j += W) STORE(RESULT, W, to, j, EPILOGUE(W, LOAD(RESULT, W, to, j), extra, j));
    PLAIN_LOOP
    for (; j < count; j++) STORE(RESULT, 1, to, j * stride, EPILOGUE(1, LOAD(RESULT, 1, to, j * stride), extra, j * stride));
}
