/* clef/base.h — the words every other header speaks: status, dtype, shape, version. */
#ifndef CLEF_BASE_H
#define CLEF_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <initializer_list>
#endif

#define CLEF_VERSION_MAJOR 0
#define CLEF_VERSION_MINOR 1
#define CLEF_VERSION_PATCH 0

#if defined(CLEF_STATIC)
#define CLEF_API
#elif defined(_WIN32)
#ifdef CLEF_EXPORTS
#define CLEF_API __declspec(dllexport)
#else
#define CLEF_API __declspec(dllimport)
#endif
#else
#define CLEF_API __attribute__((visibility("default")))
#endif

/* CLEF_DEPRECATED("clef_set_training") before a function: its name goes with the next release, that one is used instead. */
#if defined(__GNUC__)
#define CLEF_DEPRECATED(instead) __attribute__((deprecated("use " instead)))
#elif defined(_MSC_VER)
#define CLEF_DEPRECATED(instead) __declspec(deprecated("use " instead))
#else
#define CLEF_DEPRECATED(instead)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One table makes the enum, the names and the messages.  X(NAME, "message") */
#define CLEF_STATUS_MAP(X)                                \
    X(OK, "no error")                                     \
    X(INVALID, "invalid argument")                        \
    X(SHAPE, "shapes do not fit")                         \
    X(DTYPE, "dtype not supported here")                  \
    X(MEMORY, "out of memory")                            \
    X(NO_DEVICE, "no OpenCL device")                      \
    X(DEVICE, "the device or its driver failed")          \
    X(BUILD, "a kernel did not compile")                  \
    X(IO, "a file could not be read or written")          \
    X(FORMAT, "a file is damaged or of another format")   \
    X(UNSUPPORTED, "not supported")                       \
    X(STATE, "called at the wrong time")                  \
    X(LOST, "the device is lost")                         \
    X(INTERRUPTED, "interrupted")                         \
    X(INTERNAL, "Clef contradicts itself: a bug in Clef") \
    X(GROUP, "another rank failed or did something else")

typedef enum clef_status {
#define X(name, message) CLEF_##name,
    CLEF_STATUS_MAP(X)
#undef X
} clef_status;

/* "CLEF_SHAPE", "CLEF_IO", … ; a static string, also for unknown values. */
CLEF_API const char *clef_status_name(clef_status status);
/* One short sentence for the status; a static string. */
CLEF_API const char *clef_status_message(clef_status status);

/* X(NAME, token, bytes, "what it is").  f16 and bf16 are storage formats, computed in f32. */
#define CLEF_DTYPE_MAP(X)                                    \
    X(F32, f32, 4, "IEEE binary32")                          \
    X(F16, f16, 2, "IEEE binary16, computed in f32")         \
    X(BF16, bf16, 2, "bfloat16, computed in f32")            \
    X(F64, f64, 8, "IEEE binary64, where the device has it") \
    X(I32, i32, 4, "signed 32-bit integer")                  \
    X(I64, i64, 8, "signed 64-bit integer")                  \
    X(U8, u8, 1, "unsigned 8-bit integer")                   \
    X(BOOL, bool, 1, "0 or 1 in one byte")

typedef enum clef_dtype {
#define X(name, token, bytes, what) CLEF_##name,
    CLEF_DTYPE_MAP(X)
#undef X
        CLEF_DTYPE_COUNT
} clef_dtype;

/* Bytes of one element; 0 for an unknown dtype. */
CLEF_API size_t clef_dtype_size(clef_dtype dtype);
/* "f32", "bf16", …; a static string. */
CLEF_API const char *clef_dtype_name(clef_dtype dtype);

enum { CLEF_MAX_RANK = 8 };

/* A shape by value: `rank` dimensions, outermost first.  Rank 0 is a scalar; a dimension of 0 is an empty tensor. */
typedef struct clef_shape {
    int rank;
    int64_t dim[CLEF_MAX_RANK];
} clef_shape;

/* Product of the dimensions; 1 for a scalar, 0 if a dimension is 0.  -1 for a shape that cannot be: a negative
   dimension, or dimensions other than 0 whose product overflows (those of an empty tensor too). */
CLEF_API int64_t clef_shape_numel(clef_shape shape);
/* Same rank and dimensions. */
CLEF_API bool clef_shape_equal(clef_shape a, clef_shape b);
/* Writes "[8,3,32,32]" into text (at most `size` bytes, always terminated); returns text. */
CLEF_API char *clef_shape_format(clef_shape shape, char *text, size_t size);

/* The library's version at run time, "0.1.0". */
CLEF_API const char *clef_version(void);

/* Which of n words was probably meant by one that is none of them: the nearest by letters changed, added, left out
   or swapped, or one that begins or ends so; NULL if none is near.  What Clef's own "did you mean" says.
       clef_closest("wieght", (const char *[]){"weight", "bias"}, 2)   "weight"  */
CLEF_API const char *clef_closest(const char *word, const char *const *words, int n);

typedef struct clef_context clef_context; /* everything Clef owns; see clef/context.h */
typedef struct clef_tensor clef_tensor;   /* a value on a device; see clef/tensor.h */

#ifdef __cplusplus
}
/* C++ has no compound literals: the same spellings make these things there by other means. */
template <typename... D> static inline clef_shape clef__shape(D... d) {
    return clef_shape{static_cast<int>(sizeof...(D)), {static_cast<int64_t>(d)...}};
}
#define CLEF_SHAPE(...) clef__shape(__VA_ARGS__)
/* clang-format off */
#define CLEF_SCALAR clef_shape{}
/* clang-format on */
#define CLEF_ARRAY(type, ...) (std::initializer_list<type>{__VA_ARGS__}.begin())

/* CLEF_OPTIONS(clef_loader_options, o.batch = 64, o.shuffle = true): what &(clef_loader_options){.batch = 64, .shuffle
   = true} is in C, a pointer to options that live until the end of the full expression.  Fields that are not named
   are zero, which means their default. */
template <typename T> struct clef__filled_options {
    T value;
    operator const T *() const { return &value; }
};
template <typename T, typename F> static inline clef__filled_options<T> clef__make_options(F &&fill) {
    clef__filled_options<T> o{};
    fill(o.value);
    return o;
}
#define CLEF_OPTIONS(type, ...) clef__make_options<type>([&](type &o) { __VA_ARGS__; })
#else
/* CLEF_SHAPE(8, 3, 32, 32): a shape of up to eight dimensions. */
#define CLEF_SHAPE(...) ((clef_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
/* The shape of a single number. */
#define CLEF_SCALAR ((clef_shape){0, {0}})
/* CLEF_ARRAY(int, 0, 2): a pointer to an array that lives until the end of the block (C++: of the expression). */
#define CLEF_ARRAY(type, ...) ((type[]){__VA_ARGS__})
#endif
#endif
