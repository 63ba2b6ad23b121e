/* OpenBLAS: sgemm.  cc -O2 peer_openblas.c -lopenblas */
#include "peer.h"
#include <cblas.h>

static double gemm(const char *line) {
    int m = (int)number(line, "m", 1), n = (int)number(line, "n", 1), k = (int)number(line, "k", 1);
    int ta = (int)number(line, "ta", 0), tb = (int)number(line, "tb", 0), calls = (int)number(line, "calls", 10);
    size_t size_a = (size_t)m * (size_t)k, size_b = (size_t)k * (size_t)n, size_c = (size_t)m * (size_t)n;
    int copies = copies_of((double)(size_a + size_b + size_c));
    float *a = random_floats(size_a * (size_t)copies), *b = random_floats(size_b * (size_t)copies),
          *c = random_floats(size_c * (size_t)copies);
    double begin = 0;
    for (int i = -2; i < calls; i++) {
        if (i == 0) begin = now();
        size_t at = (size_t)((i + 2) % copies);
        cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a + at * size_a,
                    ta ? m : k, b + at * size_b, tb ? k : n, 0, c + at * size_c, n);
    }
    double seconds = (now() - begin) / calls;
    free(a);
    free(b);
    free(c);
    return seconds;
}

static double run(const char *line) { return strncmp(line, "gemm ", 5) == 0 ? gemm(line) : -1; }

int main(void) {
    serve(openblas_get_config(), run);
    return 0;
}
