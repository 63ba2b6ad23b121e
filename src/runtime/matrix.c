/* matrix.c — does a device have matrix units that kernels can reach (cl/matrix_unit.h)?

   Only one that says it has an instruction set of the table below is asked, as compilers of others may stop the process at text
   they do not know.  Then one product of whole numbers is compiled and made in each half type (cl/matrix_probe.cl): where it does
   not compile, or a single element is wrong, there are none.  Products of f32 in TF32 are asked about by themselves, when somebody wants
   them, with numbers that must be rounded among the whole ones.  No error of this ever reaches the context. */
#include "runtime/half.h"
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <string.h>

enum { M = 16, N = 8, HALVES_K = 16, WORDS_K = 8, LARGEST = 8, LANES = 32 };

static const struct {
    clef__matrix_unit unit;
    const char *name, *extension; /* that a device reports, with which */
    cl_device_info fact;          /* it can be asked for this, */
    cl_uint least;                /* which must be this much */
} units[] = {
    {CLEF__PTX, "PTX", "cl_nv_device_attribute_query", CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, 8},
};

/* ---- one product, on the host and on the device ---- */
/* k elements of a row of A, or of a column of B, of a half type or of f32: the same number of bytes. */
typedef union line {
    uint16_t half[HALVES_K];
    uint32_t word[WORDS_K];
} line;
typedef struct product {
    line a[M], b[N];
    float c[M][N], want[M][N];
} product;

/* Numbers without a pattern that a permutation of elements could keep. */
static int number(int i, int salt) {
    uint32_t x = ((uint32_t)i + 1) * 0x9e3779b9u ^ (uint32_t)salt * 0x85ebca6bu;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    return (int)((x >> 12) % (2 * LARGEST + 1)) - LARGEST;
}

static int depth_of(clef_dtype in) { return in == CLEF_F32 ? WORDS_K : HALVES_K; }

/* Bits of an f32 that lies at a tie between v and the TF32 beyond it, or just below: rounded it is that number, or v, which is returned. */
static double off_tf32(uint32_t *bits, int v, int i) {
    enum { TIE = 1 << 12, STEP = 1 << 13 };
    float plain = (float)v, beyond;
    memcpy(bits, &plain, sizeof *bits);
    if (v == 0 || i % 3 == 0) return v;
    uint32_t next = *bits + STEP;
    memcpy(&beyond, &next, sizeof beyond);
    *bits += i % 3 == 1 ? TIE : TIE - 1;
    return (double)(i % 3 == 1 ? beyond : plain);
}

/* Element i of A or B, into lines; the number that is to be multiplied. */
static double put_element(line *lines, int i, int salt, clef_dtype in) {
    int v = number(i, salt), k = depth_of(in);
    if (in == CLEF_F32) return off_tf32(&lines[i / k].word[i % k], v, salt == 1 ? i : 0);
    lines[i / k].half[i % k] = in == CLEF_BF16 ? clef__to_bf16(v) : clef__to_f16(v);
    return v;
}

/* Whole numbers, some of A with a bit 10 places below the first: all sums are exact. */
static void fill_product(product *p, clef_dtype in) {
    double a[M * HALVES_K], b[N * HALVES_K];
    int depth = depth_of(in);
    for (int i = 0; i < M * depth; i++) a[i] = put_element(p->a, i, 1, in);
    for (int i = 0; i < N * depth; i++) b[i] = put_element(p->b, i, 2, in);
    for (int i = 0; i < M * N; i++) {
        double sum = number(i, 3);
        p->c[i / N][i % N] = (float)sum;
        for (int k = 0; k < depth; k++) sum += a[i / N * depth + k] * b[i % N * depth + k];
        p->want[i / N][i % N] = (float)sum;
    }
}

bool clef__matrix_probe(clef__device *device, const char *options, clef_dtype in) {
    char all[128];
    product p;
    fill_product(&p, in);
    snprintf(all, sizeof all, "%s -DIN=%s", options, clef_dtype_name(in));
    const clef__trial_memory m[] = {{p.a, sizeof p.a}, {p.b, sizeof p.b}, {p.c, sizeof p.c}};
    return clef__try_kernel(device, "matrix_probe", all, LANES, m, 3) && memcmp(p.c, p.want, sizeof p.c) == 0;
}

/* ---- the answer ---- */
static clef__matrix_unit find_unit(clef__device *device) {
    const char *asked = clef__env("CLEF_MATRIX");
    if (asked && strcmp(asked, "0") == 0) return CLEF__NO_MATRIX_UNIT;
    if (asked && strcmp(asked, "emulated") == 0) return CLEF__EMULATED;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!clef__alive(device) || !clef__device_says(device, units[i].extension, units[i].fact, units[i].least)) continue;
        char options[32];
        snprintf(options, sizeof options, "-D%s", units[i].name);
        bool works = clef__matrix_probe(device, options, CLEF_F16) && clef__matrix_probe(device, options, CLEF_BF16);
        clef__log_line(device->ctx, CLEF_LOG_INFO, "%s: matrix units by %s %s", device->info.name, units[i].name,
                       works ? "are used for products of half types" : "do not do what they should, and are left alone");
        if (works) return units[i].unit;
    }
    return CLEF__NO_MATRIX_UNIT;
}

clef__matrix_unit clef__device_matrix_unit(clef__device *device) {
    if (!device->matrix_asked) device->matrix_unit = find_unit(device);
    device->matrix_asked = true;
    return device->matrix_unit;
}

static bool multiplies_tf32(clef__device *device) {
    clef__matrix_unit unit = clef__device_matrix_unit(device);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (units[i].unit != unit) continue;
        char options[32];
        snprintf(options, sizeof options, "-D%s", units[i].name);
        bool works = clef__matrix_probe(device, options, CLEF_F32);
        clef__log_line(device->ctx, CLEF_LOG_INFO, "%s: matrix units by %s %s", device->info.name, units[i].name,
                       works ? "are used for products of f32 in TF32"
                             : "do not multiply TF32 as they should, and are left alone for f32");
        return works;
    }
    return unit == CLEF__EMULATED;
}

bool clef__device_tf32(clef__device *device) {
    if (!device->tf32_asked) device->tf32 = multiplies_tf32(device);
    device->tf32_asked = true;
    return device->tf32;
}
