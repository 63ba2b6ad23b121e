/* reference_net.h — a small residual net with batch norm, its loss and its gradients, in plain C and in the type REAL; included
   once per type, with NAMED(x) making the names differ.  The images are [N,C,S,S] with N = BATCH, S = SIDE; the weights lie in
   the order of `enum slot`, with sizes slot_size. */

static void NAMED(conv)(const REAL *x, int cin, const REAL *w, REAL *y, const REAL *dy, REAL *dx, REAL *dw) {
    for (int n = 0; n < BATCH; n++)
        for (int o = 0; o < WIDTH; o++)
            for (int i = 0; i < SIDE * SIDE; i++) {
                int at = (n * WIDTH + o) * SIDE * SIDE + i;
                REAL sum = 0;
                for (int k = 0; k < cin * 9; k++) {
                    int h = i / SIDE + k % 9 / 3 - 1, v = i % SIDE + k % 3 - 1;
                    if (h < 0 || v < 0 || h >= SIDE || v >= SIDE) continue;
                    int from = ((n * cin + k / 9) * SIDE + h) * SIDE + v;
                    if (y) sum += x[from] * w[o * cin * 9 + k];
                    else {
                        dw[o * cin * 9 + k] += x[from] * dy[at];
                        if (dx) dx[from] += w[o * cin * 9 + k] * dy[at];
                    }
                }
                if (y) y[at] = sum;
            }
}

/* y = relu?(g·(x - mean)/sqrt(var + eps) + b + skip); hat keeps the normalised x, scale g/sqrt(…)'s second factor. */
static void NAMED(norm)(const REAL *x, const REAL *g, const REAL *b, const REAL *skip, REAL *y, REAL *hat, REAL *scale) {
    const int area = SIDE * SIDE, count = BATCH * area;
    for (int c = 0; c < WIDTH; c++) {
        REAL mean = 0, var = 0;
        for (int i = 0; i < count; i++) mean += x[(i / area * WIDTH + c) * area + i % area];
        mean /= (REAL)count;
        for (int i = 0; i < count; i++) {
            REAL d = x[(i / area * WIDTH + c) * area + i % area] - mean;
            var += d * d;
        }
        scale[c] = 1 / (REAL)sqrt((double)(var / (REAL)count + (REAL)1e-5));
        for (int i = 0; i < count; i++) {
            int at = (i / area * WIDTH + c) * area + i % area;
            hat[at] = (x[at] - mean) * scale[c];
            REAL v = g[c] * hat[at] + b[c] + (skip ? skip[at] : 0);
            y[at] = v > 0 ? v : 0;
        }
    }
}

/* dy (through relu, in place) → dx, dg, db. */
static void NAMED(norm_back)(const REAL *y, const REAL *hat, const REAL *scale, const REAL *g, REAL *dy, REAL *dx, REAL *dg,
                             REAL *db) {
    const int area = SIDE * SIDE, count = BATCH * area;
    for (int c = 0; c < WIDTH; c++) {
        for (int i = 0; i < count; i++) {
            int at = (i / area * WIDTH + c) * area + i % area;
            if (!(y[at] > 0)) dy[at] = 0;
            dg[c] += dy[at] * hat[at];
            db[c] += dy[at];
        }
        for (int i = 0; i < count; i++) {
            int at = (i / area * WIDTH + c) * area + i % area;
            dx[at] = g[c] * scale[c] * (dy[at] - (db[c] + hat[at] * dg[c]) / (REAL)count);
        }
    }
}

/* Mean over the image, linear, mean cross entropy over the batch; gradients of weight, bias and x. */
static double NAMED(head)(const REAL *x, const REAL *w, const REAL *b, const int64_t *label, REAL *dw, REAL *db, REAL *dx) {
    const int area = SIDE * SIDE;
    REAL loss = 0;
    for (int n = 0; n < BATCH; n++) {
        REAL mean[WIDTH] = {0}, z[CLASSES], sum = 0, most = (REAL)-1e30;
        for (int i = 0; i < WIDTH * area; i++) mean[i / area] += x[n * WIDTH * area + i];
        for (int c = 0; c < WIDTH; c++) mean[c] /= (REAL)area;
        for (int k = 0; k < CLASSES; k++) {
            z[k] = b[k];
            for (int c = 0; c < WIDTH; c++) z[k] += w[k * WIDTH + c] * mean[c];
            most = z[k] > most ? z[k] : most;
        }
        for (int k = 0; k < CLASSES; k++) sum += (REAL)exp((double)(z[k] - most));
        loss += (REAL)log((double)sum) + most - z[label[n]];
        for (int k = 0; k < CLASSES; k++) {
            REAL d = ((REAL)exp((double)(z[k] - most)) / sum - (REAL)(label[n] == k)) / (REAL)BATCH;
            db[k] += d;
            for (int c = 0; c < WIDTH; c++) dw[k * WIDTH + c] += d * mean[c];
            for (int i = 0; i < WIDTH * area; i++) dx[n * WIDTH * area + i] += d * w[k * WIDTH + i / area] / (REAL)area;
        }
    }
    return (double)(loss / (REAL)BATCH);
}

/* Loss and gradients (of the weights' layout) in double, whatever they were computed in. */
static double NAMED(reference)(const float *weights, const float *pixels, const int64_t *label, double *gradients) {
    enum { PIXELS = BATCH * SIDE * SIDE, MAPS = PIXELS * WIDTH };
    REAL *w[SLOTS], *d[SLOTS], *a[2 * CONVS + 2], scale[CONVS][WIDTH];
    size_t at = 0;
    for (int s = 0; s < SLOTS; at += (size_t)slot_size(s), s++) {
        w[s] = malloc((size_t)slot_size(s) * sizeof(REAL)), d[s] = calloc((size_t)slot_size(s), sizeof(REAL));
        for (int i = 0; i < slot_size(s); i++) w[s][i] = (REAL)weights[at + (size_t)i];
    }
    for (int i = 0; i < 2 * CONVS + 2; i++) a[i] = calloc(MAPS, sizeof(REAL));
    REAL **y = a, **hat = a + CONVS + 1, *map = malloc(MAPS * sizeof(REAL)), *dy = calloc(MAPS, sizeof(REAL)),
         *dx = malloc(MAPS * sizeof(REAL));
    REAL *skip_dy = calloc(MAPS, sizeof(REAL));
    for (int i = 0; i < PIXELS; i++) y[0][i] = (REAL)pixels[i];
    for (int l = 0; l < CONVS; l++) {
        NAMED(conv)(y[l], l ? WIDTH : 1, w[3 * l], map, NULL, NULL, NULL);
        NAMED(norm)(map, w[3 * l + 1], w[3 * l + 2], l && l % 2 == 0 ? y[l - 1] : NULL, y[l + 1], hat[l], scale[l]);
    }
    double loss = NAMED(head)(y[CONVS], w[3 * CONVS], w[3 * CONVS + 1], label, d[3 * CONVS], d[3 * CONVS + 1], dy);
    for (int l = CONVS - 1; l >= 0; l--) {
        NAMED(norm_back)(y[l + 1], hat[l], scale[l], w[3 * l + 1], dy, dx, d[3 * l + 1], d[3 * l + 2]);
        if (l && l % 2 == 0) memcpy(skip_dy, dy, MAPS * sizeof(REAL)); /* dy went through relu: the shortcut's too */
        if (l % 2 == 1) memcpy(dy, skip_dy, MAPS * sizeof(REAL));
        else memset(dy, 0, MAPS * sizeof(REAL));
        NAMED(conv)(y[l], l ? WIDTH : 1, w[3 * l], NULL, dx, l ? dy : NULL, d[3 * l]);
    }
    for (int s = 0, i = 0; s < SLOTS; free(w[s]), free(d[s]), s++)
        for (int k = 0; k < slot_size(s); k++) gradients[i++] = (double)d[s][k];
    for (int i = 0; i < 2 * CONVS + 2; i++) free(a[i]);
    free(map), free(dy), free(dx), free(skip_dy);
    return loss;
}
