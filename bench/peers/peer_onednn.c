/* oneDNN through its C API: matmul and convolution in all three directions, each in the layout the library asks for (its own
   blocked one for weights and images).  cc -O2 peer_onednn.c -ldnnl */
#include "peer.h"
#include <dnnl.h>
#include <dnnl_version.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static dnnl_memory_t memory_for(const dnnl_memory_desc_t *desc) {
    dnnl_memory_t memory = NULL;
    void *data = NULL;
    dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE);
    dnnl_memory_get_data_handle(memory, &data);
    size_t bytes = dnnl_memory_desc_get_size(desc);
    float *x = random_floats(bytes / sizeof *x);
    memcpy(data, x, bytes);
    free(x);
    return memory;
}

/* Times a primitive on rotating copies of its (up to three) arguments. */
static double time_primitive(dnnl_primitive_desc_t desc, const int *names, const dnnl_query_t *queries, const int *indices, int n,
                             int calls) {
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t args[16][3];
    double floats = 0;
    for (int i = 0; i < n; i++)
        floats += (double)dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(desc, queries[i], indices[i])) / 4;
    int copies = copies_of(floats);
    if (dnnl_primitive_create(&primitive, desc) != dnnl_success) return -1;
    for (int c = 0; c < copies; c++)
        for (int i = 0; i < n; i++)
            args[c][i] = (dnnl_exec_arg_t){names[i], memory_for(dnnl_primitive_desc_query_md(desc, queries[i], indices[i]))};
    double begin = 0;
    for (int i = -2; i < calls; i++) {
        if (i == 0) begin = now();
        dnnl_primitive_execute(primitive, stream, n, args[(i + 2) % copies]);
        dnnl_stream_wait(stream);
    }
    double seconds = (now() - begin) / calls;
    for (int c = 0; c < copies; c++)
        for (int i = 0; i < n; i++) dnnl_memory_destroy(args[c][i].memory);
    dnnl_primitive_destroy(primitive);
    return seconds;
}

static double gemm(const char *line) {
    long m = number(line, "m", 1), n = number(line, "n", 1), k = number(line, "k", 1);
    int ta = (int)number(line, "ta", 0), tb = (int)number(line, "tb", 0);
    dnnl_memory_desc_t a, b, c;
    dnnl_memory_desc_init_by_tag(&a, 2, (dnnl_dims_t){m, k}, dnnl_f32, ta ? dnnl_ba : dnnl_ab);
    dnnl_memory_desc_init_by_tag(&b, 2, (dnnl_dims_t){k, n}, dnnl_f32, tb ? dnnl_ba : dnnl_ab);
    dnnl_memory_desc_init_by_tag(&c, 2, (dnnl_dims_t){m, n}, dnnl_f32, dnnl_ab);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t desc;
    if (dnnl_matmul_desc_init(&op, &a, &b, NULL, &c) != dnnl_success ||
        dnnl_primitive_desc_create(&desc, &op, NULL, engine, NULL) != dnnl_success)
        return -1;
    double seconds = time_primitive(desc, (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                    (dnnl_query_t[]){dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md}, (int[]){0, 0, 0},
                                    3, (int)number(line, "calls", 10));
    dnnl_primitive_desc_destroy(desc);
    return seconds;
}

static double conv(const char *line) {
    long n = number(line, "n", 1), c = number(line, "c", 1), h = number(line, "h", 1), w = number(line, "w", 1),
         o = number(line, "o", 1), kh = number(line, "kh", 1), kw = number(line, "kw", 1), stride = number(line, "stride", 1),
         pad = number(line, "pad", 0), groups = number(line, "groups", 1), oh = (h + 2 * pad - kh) / stride + 1,
         ow = (w + 2 * pad - kw) / stride + 1;
    int calls = (int)number(line, "calls", 10);
    dnnl_memory_desc_t x, weights, y;
    dnnl_memory_desc_init_by_tag(&x, 4, (dnnl_dims_t){n, c, h, w}, dnnl_f32, dnnl_format_tag_any);
    if (groups > 1)
        dnnl_memory_desc_init_by_tag(&weights, 5, (dnnl_dims_t){groups, o / groups, c / groups, kh, kw}, dnnl_f32,
                                     dnnl_format_tag_any);
    else dnnl_memory_desc_init_by_tag(&weights, 4, (dnnl_dims_t){o, c, kh, kw}, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&y, 4, (dnnl_dims_t){n, o, oh, ow}, dnnl_f32, dnnl_format_tag_any);
    dnnl_dims_t strides = {stride, stride}, pads = {pad, pad};
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t forward, desc;
    if (dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_auto, &x, &weights, NULL, &y, strides, pads,
                                           pads) != dnnl_success ||
        dnnl_primitive_desc_create(&forward, &op, NULL, engine, NULL) != dnnl_success)
        return -1;
    double seconds = -1;
    if (strstr(line, "dir=data")) {
        dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_auto, &x, &weights, &y, strides, pads, pads);
        if (dnnl_primitive_desc_create(&desc, &op, NULL, engine, forward) == dnnl_success)
            seconds = time_primitive(desc, (int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                                     (dnnl_query_t[]){dnnl_query_diff_dst_md, dnnl_query_weights_md, dnnl_query_diff_src_md},
                                     (int[]){0, 0, 0}, 3, calls);
    } else if (strstr(line, "dir=weight")) {
        dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_auto, &x, &weights, NULL, &y, strides, pads, pads);
        if (dnnl_primitive_desc_create(&desc, &op, NULL, engine, forward) == dnnl_success)
            seconds = time_primitive(desc, (int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
                                     (dnnl_query_t[]){dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md},
                                     (int[]){0, 0, 0}, 3, calls);
    } else {
        seconds = time_primitive(forward, (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                 (dnnl_query_t[]){dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md}, (int[]){0, 0, 0}, 3,
                                 calls);
    }
    dnnl_primitive_desc_destroy(forward);
    return seconds;
}

static double run(const char *line) {
    return strncmp(line, "gemm ", 5) == 0 ? gemm(line) : strncmp(line, "conv ", 5) == 0 ? conv(line) : -1;
}

int main(void) {
    char name[64];
    const dnnl_version_t *version = dnnl_version();
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    snprintf(name, sizeof name, "onednn %d.%d.%d", version->major, version->minor, version->patch);
    serve(name, run);
    return 0;
}
