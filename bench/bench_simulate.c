/* bench_simulate.c — how long a training step would take on 1 to 1,024 ranks, from what was measured on few.
       bench_simulate [NAME=NUMBER …]     step=330 parameters=44.7 buckets=4 bandwidth=5 latency=20 layers=18 activation=12.8 micro=8
       bench_simulate check               compares the simulation with cases that have closed forms

   step: ms that one rank computes for the whole batch, a third of it forward (measured, without communication).  parameters: MB of
   gradients.  bandwidth: GB/s of each rank's link, both ways at once; latency: µs of a message (bench_group measures both).  layers:
   that a model can be cut behind; activation: MB that leave such a layer for the whole batch; micro: micro-batches of a pipeline.

   data       Each rank computes its share of the batch.  Gradients go in buckets, each as soon as backward has made it, one after the
              other over the link; an all-reduce is a ring or a tree, whichever takes less: 2(n−1)·latency + 2(n−1)/n·bytes/bandwidth, or
              2·log2 n·(latency + bytes/bandwidth).  (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, 2009)
   pipeline   n equal stages, one forward and one backward in turn (Narayanan et al.: PipeDream, 2019); a message takes latency +
              bytes/bandwidth, beside the computing.  As many ranks as there are layers at most.
   tensor     Each layer's work is cut into n; one all-reduce of its activation forward and one backward, which nothing goes beside.
              (Shoeybi et al.: Megatron-LM, 2019)
   hybrid     The best of all grids data × pipeline × tensor.

   Every figure is the time of one step of the same whole batch (strong scaling).  What it leaves out: links that are shared, ranks of
   unequal speed, kernels that are slower for small shares. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 1024, MOST_MICRO = 256 };

typedef struct machine {
    double step, parameters, buckets, bandwidth, latency, layers, activation, micro;
} machine;

static const struct {
    const char *name;
    size_t at;
} names[] = {
#define NAME(n) \
    { #n, offsetof(machine, n) }
    NAME(step), NAME(parameters), NAME(buckets), NAME(bandwidth), NAME(latency), NAME(layers), NAME(activation), NAME(micro),
};

/* ---- messages: ms, of MB ---- */

static double message(const machine *m, double mb) { return m->latency * 1e-3 + mb / m->bandwidth; }

static double all_reduce(const machine *m, double mb, int n) {
    if (n == 1) return 0;
    double ring = 2 * (n - 1) * (m->latency * 1e-3 + mb / n / m->bandwidth), tree = 2 * ceil(log2(n)) * message(m, mb);
    return fmin(ring, tree);
}

/* ---- the ways to divide the work ---- */

/* `compute`: what one rank of the group computes in a step; `mb`: of its gradients. */
static double data_parallel(const machine *m, double compute, double mb, int n) {
    double begin = compute / 3, link = 0;
    for (int b = 1; b <= (int)m->buckets; b++) {
        double ready = begin + (compute - begin) * b / m->buckets;
        link = fmax(ready, link) + all_reduce(m, mb / m->buckets, n);
    }
    return fmax(compute, link);
}

/* One forward, one backward: stage s begins with n − s forwards, then takes turns.  Each of its works waits for the neighbour's. */
static double pipeline(const machine *m, double compute, double activation, int n) {
    static double forward[MOST_STAGES][MOST_MICRO], backward[MOST_STAGES][MOST_MICRO];
    int micro = (int)fmin(m->micro, MOST_MICRO), did_forward[MOST_STAGES] = {0}, did_backward[MOST_STAGES] = {0};
    double f = compute / 3 / n / micro, b = 2 * f, hop = n > 1 ? message(m, activation / micro) : 0, free_at[MOST_STAGES] = {0},
           end = 0;
    for (int left = 2 * n * micro; left > 0;) {
        for (int s = 0; s < n; s++) {
            bool more = true;
            while (more) {
                int i = did_forward[s], j = did_backward[s];
                bool goes_back = j < i && (i == micro || i - j >= n - s);
                more = false;
                if (goes_back && (s == n - 1 || did_backward[s + 1] > j)) {
                    double ready = s == n - 1 ? forward[s][j] : backward[s + 1][j] + hop;
                    free_at[s] = backward[s][j] = fmax(free_at[s], ready) + b;
                    did_backward[s]++;
                    more = true;
                } else if (!goes_back && i < micro && (s == 0 || did_forward[s - 1] > i)) {
                    double ready = s == 0 ? 0 : forward[s - 1][i] + hop;
                    free_at[s] = forward[s][i] = fmax(free_at[s], ready) + f;
                    did_forward[s]++;
                    more = true;
                }
                left -= more;
            }
            end = fmax(end, free_at[s]);
        }
    }
    return end;
}

static double tensor(const machine *m, double compute, double activation, double layers, int n) {
    return compute / n + 2 * layers * all_reduce(m, activation, n);
}

/* ---- grids ---- */

static double grid(const machine *m, int d, int p, int t) {
    double activation = m->activation / d, compute = tensor(m, m->step / d, activation, m->layers, t);
    return data_parallel(m, p == 1 ? compute : pipeline(m, compute, activation / t, p), m->parameters / p / t, d);
}

static double best_grid(const machine *m, int n, int best[3]) {
    double least = INFINITY;
    for (int p = 1; p <= n && p <= (int)m->layers; p *= 2)
        for (int t = 1; p * t <= n; t *= 2) {
            double ms = grid(m, n / p / t, p, t);
            if (ms >= least) continue;
            least = ms;
            best[0] = n / p / t, best[1] = p, best[2] = t;
        }
    return least;
}

static void print_scaling(const machine *m) {
    printf("%5s %10s %5s %10s %5s %10s %5s %10s %5s  %s\n", "ranks", "data ms", "eff", "pipeline", "eff", "tensor", "eff", "hybrid",
           "eff", "data × pipeline × tensor");
    for (int n = 1; n <= MOST_STAGES; n *= 2) {
        int best[3] = {1, 1, 1};
        double d = grid(m, n, 1, 1), p = n <= (int)m->layers ? grid(m, 1, n, 1) : NAN, t = grid(m, 1, 1, n),
               h = best_grid(m, n, best);
        printf("%5d %10.2f %5.2f %10.2f %5.2f %10.2f %5.2f %10.2f %5.2f  %d × %d × %d\n", n, d, m->step / n / d, p, m->step / n / p,
               t, m->step / n / t, h, m->step / n / h, best[0], best[1], best[2]);
    }
}

/* ---- closed forms ---- */

static int wrong;

static void expect(const char *what, double got, double wanted) {
    if (fabs(got - wanted) <= 1e-9 * fmax(1, fabs(wanted))) return;
    printf("FAILED: %s: %.9g, not %.9g\n", what, got, wanted);
    wrong++;
}

static void check(void) {
    machine free_links = {
        .step = 120, .parameters = 8, .buckets = 4, .bandwidth = INFINITY, .layers = 16, .activation = 3, .micro = 8};
    for (int n = 1; n <= 16; n *= 2) {
        expect("data parallel without communication", grid(&free_links, n, 1, 1), 120.0 / n);
        expect("tensor parallel without communication", grid(&free_links, 1, 1, n), 120.0 / n);
        expect("a pipeline's bubble", grid(&free_links, 1, n, 1), 120.0 / n * (8 + n - 1) / 8);
    }
    machine slow = free_links;
    slow.bandwidth = 1e-3; /* so slow that the link is all there is, from the first bucket on */
    expect("data parallel behind its link", grid(&slow, 2, 1, 1), 60.0 / 3 + 40.0 / 4 + 2 * 0.5 * 8 / 1e-3);
    machine far = free_links;
    far.latency = 1000;
    expect("a ring of two", all_reduce(&far, 0, 2), 2);
    expect("a tree of eight", all_reduce(&far, 0, 8), 6);
    expect("two stages and one micro-batch", (far.micro = 1, grid(&far, 1, 2, 1)), 120 + 2 * 1.0);
}

int main(int argc, char **argv) {
    machine m = {
        .step = 330, .parameters = 44.7, .buckets = 4, .bandwidth = 5, .latency = 20, .layers = 18, .activation = 12.8, .micro = 8};
    if (argc == 2 && strcmp(argv[1], "check") == 0) return check(), wrong != 0;
    for (int a = 1; a < argc; a++) {
        const char *value = strchr(argv[a], '=');
        size_t i = 0, n = sizeof names / sizeof *names;
        while (value && i < n &&
               (strlen(names[i].name) != (size_t)(value - argv[a]) || memcmp(names[i].name, argv[a], strlen(names[i].name))))
            i++;
        double number = value && i < n ? strtod(value + 1, NULL) : 0;
        if (!(number > 0))
            return fprintf(stderr, "bench_simulate: %s is no NAME=NUMBER above 0; see the head of bench_simulate.c\n", argv[a]), 2;
        memcpy((char *)&m + names[i].at, &number, sizeof number);
    }
    print_scaling(&m);
    return 0;
}
