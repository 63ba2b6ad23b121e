/* reference.c — what one element of a node is, by the definition of its op: with it clef_tune checks what kernels compute.  Plain
   loops on the host, which share nothing with them; products only, as only they can be tuned, and one gradient of pooling. */
#include "ops/ops.h"
#include "kernels/conv.h"
#include "plan/tune/tune.h"

#include <string.h>

#define AT(...) ((const int64_t[]){__VA_ARGS__})

/* Leading dimensions broadcast; `row` and `column` are the last two. */
static double matrix_number(const clef__numbers *x, const clef__node *node, const int64_t *at, int64_t row, int64_t column) {
    int64_t own[CLEF_MAX_RANK];
    int rank = x->x->rank, ahead = node->out->shape.rank - rank;
    for (int d = 0; d < rank - 2; d++) own[d] = x->x->dim[d] == 1 ? 0 : at[ahead + d];
    own[rank - 2] = row;
    own[rank - 1] = column;
    return clef__number_at(x, own);
}

double clef__matmul_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    int64_t m = at[node->out->shape.rank - 2], n = at[node->out->shape.rank - 1];
    double sum = 0;
    for (int64_t k = 0; k < in[0].x->dim[in[0].x->rank - 1]; k++)
        sum += matrix_number(&in[0], node, at, m, k) * matrix_number(&in[1], node, at, k, n);
    return sum;
}

double clef__linear_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    int last = node->out->shape.rank - 1;
    int64_t x[CLEF_MAX_RANK];
    double sum = node->n_inputs > 2 ? clef__number_at(&in[2], &at[last]) : 0;
    memcpy(x, at, sizeof(int64_t) * (size_t)last);
    for (x[last] = 0; x[last] < in[1].x->dim[1]; x[last]++)
        sum += clef__number_at(&in[0], x) * clef__number_at(&in[1], AT(at[last], x[last]));
    return sum;
}

/* ---- convolution: y[n,o,oy,ox] = Σ x[n,c,…] · w[o,c,ky,kx] ---- */

/* The pixel that a result's place sees through a tap; -1: none. */
static int64_t pixel(const clef__conv *a, int d, int64_t result, int64_t tap) {
    int64_t at = result * a->stride[d] - a->before[d] + tap * a->dilation[d];
    return at < a->image[d] ? at : -1;
}

double clef__conv2d_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    const clef__conv *a = node->attributes;
    int64_t channels = in[1].x->dim[1], first = at[1] / (node->out->shape.dim[1] / a->groups) * channels;
    double sum = node->n_inputs > 2 ? clef__number_at(&in[2], &at[1]) : 0;
    for (int64_t i = 0; i < channels * a->kernel[0] * a->kernel[1]; i++) {
        int64_t c = i / (a->kernel[0] * a->kernel[1]), ky = i / a->kernel[1] % a->kernel[0], kx = i % a->kernel[1];
        int64_t y = pixel(a, 0, at[2], ky), x = pixel(a, 1, at[3], kx);
        if (y >= 0 && x >= 0)
            sum += clef__number_at(&in[0], AT(at[0], first + c, y, x)) * clef__number_at(&in[1], AT(at[1], c, ky, kx));
    }
    return sum;
}

/* The result's place that sees a pixel through a tap; -1: none. */
static int64_t result_of(const clef__conv *a, int d, int64_t pixel, int64_t tap, int64_t results) {
    int64_t at = pixel + a->before[d] - tap * a->dilation[d];
    return at >= 0 && at % a->stride[d] == 0 && at / a->stride[d] < results ? at / a->stride[d] : -1;
}

double clef__conv2d_backward_data_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    const clef__conv *a = node->attributes;
    const clef__operand *dy = in[0].x, *w = in[1].x;
    int64_t filters = w->dim[0] / a->groups, first = at[1] / w->dim[1] * filters;
    double sum = 0;
    for (int64_t i = 0; i < filters * a->kernel[0] * a->kernel[1]; i++) {
        int64_t o = first + i / (a->kernel[0] * a->kernel[1]), ky = i / a->kernel[1] % a->kernel[0], kx = i % a->kernel[1];
        int64_t y = result_of(a, 0, at[2], ky, dy->dim[2]), x = result_of(a, 1, at[3], kx, dy->dim[3]);
        if (y >= 0 && x >= 0)
            sum += clef__number_at(&in[0], AT(at[0], o, y, x)) * clef__number_at(&in[1], AT(o, at[1] % w->dim[1], ky, kx));
    }
    return sum;
}

double clef__conv2d_backward_weight_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    const clef__conv *a = node->attributes;
    const clef__operand *dy = in[1].x;
    int64_t c = at[0] / (node->out->shape.dim[0] / a->groups) * node->out->shape.dim[1] + at[1];
    double sum = 0;
    for (int64_t i = 0; i < dy->dim[0] * dy->dim[2] * dy->dim[3]; i++) {
        int64_t n = i / (dy->dim[2] * dy->dim[3]), oy = i / dy->dim[3] % dy->dim[2], ox = i % dy->dim[3];
        int64_t y = pixel(a, 0, oy, at[2]), x = pixel(a, 1, ox, at[3]);
        if (y >= 0 && x >= 0) sum += clef__number_at(&in[0], AT(n, c, y, x)) * clef__number_at(&in[1], AT(n, at[0], oy, ox));
    }
    return sum;
}

/* There is a choice only where windows tile the image: the gradient of its window, where the first of its maxima is here. */
double clef__max_pool2d_backward_element(const clef__node *node, const clef__numbers *in, const int64_t *at) {
    int64_t h = node->out->shape.dim[2] / in[1].x->dim[2], w = node->out->shape.dim[3] / in[1].x->dim[3];
    int64_t oy = at[2] / h, ox = at[3] / w, best = 0;
    double most = clef__number_at(&in[0], AT(at[0], at[1], oy * h, ox * w));
    for (int64_t i = 1; i < h * w; i++) {
        double x = clef__number_at(&in[0], AT(at[0], at[1], oy * h + i / w, ox * w + i % w));
        if (x > most) {
            most = x;
            best = i;
        }
    }
    return best == at[2] % h * w + at[3] % w ? clef__number_at(&in[1], AT(at[0], at[1], oy, ox)) : 0;
}
