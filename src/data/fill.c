/* fill.c — items of a batch: fetch, augment, normalise.
   Bytes without augmentation go through a table of 256 floats per channel; the table holds exactly what the long
   way computes, so both ways give the same bits. */
#include "data/fill.h"
#include <string.h>

static void build_table(clef__filler *f) {
    int rows = f->channels ? f->channels : 1;
    for (int c = 0; c < rows; c++)
        for (int v = 0; v < 256; v++) {
            float x = (float)v * f->data->scale;
            f->table[c * 256 + v] = f->channels ? (x - f->mean[c]) * f->inverse[c] : x;
        }
}

bool clef__filler_open(clef__filler *f, const clef_dataset *data, const clef_augment *augment, uint64_t seed, const float *mean,
                       const float *std) {
    *f = (clef__filler){.data = data, .augment = *augment, .seed = seed, .augments = clef__augments(augment)};
    if (mean || std) {
        size_t n = (size_t)data->channels;
        f->channels = data->channels;
        f->mean = clef__calloc(n, 2 * sizeof *f->mean);
        if (!f->mean) return false;
        f->inverse = f->mean + n;
        for (size_t c = 0; c < n; c++) {
            f->mean[c] = mean ? mean[c] : 0;
            f->inverse[c] = std ? 1.0f / std[c] : 1;
        }
    }
    if (data->kind != CLEF__BYTES || f->augments) return true;
    f->table = clef__calloc(f->channels ? (size_t)f->channels : 1, 256 * sizeof *f->table);
    if (f->table) build_table(f);
    return f->table != NULL;
}

void clef__filler_close(clef__filler *f) {
    clef__free(f->mean);
    clef__free(f->table);
    f->mean = f->inverse = f->table = NULL;
}

size_t clef__filler_scratch(const clef__filler *f) { return f->augments ? (size_t)f->data->numel : 0; }

static void look_up(const clef__filler *f, const uint8_t *pixel, float *x) {
    int rows = f->channels ? f->channels : 1;
    size_t plane = (size_t)(f->data->numel / rows);
    for (int c = 0; c < rows; c++, pixel += plane, x += plane) {
        const float *table = f->table + c * 256;
        for (size_t p = 0; p < plane; p++) x[p] = table[pixel[p]];
    }
}

static void normalise(const clef__filler *f, float *x) {
    size_t plane = (size_t)(f->data->numel / f->channels);
    for (int c = 0; c < f->channels; c++, x += plane) {
        float mean = f->mean[c], inverse = f->inverse[c];
        for (size_t p = 0; p < plane; p++) x[p] = (x[p] - mean) * inverse;
    }
}

static bool fill_item(const clef__filler *f, int64_t i, uint32_t epoch, float *scratch, void *const *out) {
    const clef_dataset *data = f->data;
    if (f->table) {
        look_up(f, data->pixels + (size_t)i * data->pixel_stride, out[0]);
        *(int64_t *)out[1] = data->labels[(size_t)i * data->label_stride];
        return true;
    }
    if (!clef__dataset_fetch(data, i, epoch, out)) return false;
    if (f->augments) {
        clef__change change = clef__augment_draw(&f->augment, f->seed, epoch, i, data->height, data->width);
        clef__augment_apply(&change, data->channels, data->height, data->width, out[data->image], scratch);
    }
    if (f->channels) normalise(f, out[data->image]);
    return true;
}

int64_t clef__filler_run(const clef__filler *f, const int64_t *items, int64_t n, uint32_t epoch, float *scratch,
                         uint8_t *const *memory) {
    const clef_dataset *data = f->data;
    void *out[CLEF_FIELDS_MOST];
    for (int64_t k = 0; k < n; k++) {
        for (int i = 0; i < data->n_fields; i++) out[i] = memory[i] + (size_t)k * data->field[i].bytes;
        if (!fill_item(f, items[k], epoch, scratch, out)) return items[k];
    }
    return -1;
}
