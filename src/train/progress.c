/* progress.c — a bar that rewrites its line on a terminal, a plain line every few seconds elsewhere. */
#include "train/train_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double plain_interval = 5;
enum { CELLS = 20 };

void clef__bar_init(clef__bar *bar, FILE *out) {
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *bar = (clef__bar){.out = out, .last = clef__seconds()};
    bar->terminal = out && isatty(fileno(out)) && term && strcmp(term, "dumb");
    bar->color = bar->terminal && !(no_color && *no_color);
}

/* " 97.4 %" behind its name; nothing where it is undefined. */
static void percent(FILE *out, const char *name, double share) {
    if (isfinite(share)) fprintf(out, "  %s %.2f %%", name, 100 * share);
}

static void duration(FILE *out, double seconds) {
    if (!isfinite(seconds) || seconds < 0) return;
    long s = (long)(seconds + 0.5);
    if (s >= 3600) fprintf(out, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else fprintf(out, "  ETA %ld:%02ld", s / 60, s % 60);
}

static void cells(const clef__bar *bar, double share) {
    int full = (int)(share * CELLS);
    if (full > CELLS) full = CELLS;
    fputs(bar->color ? "\033[32m" : "[", bar->out);
    for (int i = 0; i < CELLS; i++) {
        if (i == full && bar->color) fputs("\033[90m", bar->out);
        fputs(bar->color ? "\xe2\x94\x81" : i < full ? "=" : i == full ? ">" : " ", bar->out);
    }
    fputs(bar->color ? "\033[0m" : "]", bar->out);
}

static void figures(FILE *out, const clef_progress *p) {
    if (isfinite(p->loss)) fprintf(out, "  loss %.4f", p->loss);
    percent(out, "acc", p->accuracy);
    if (p->items_per_second > 0) fprintf(out, "  %.0f/s", p->items_per_second);
    duration(out, p->eta);
}

static void line(const clef__bar *bar, const clef_progress *p) {
    if (p->compiling < p->to_compile) {
        fprintf(bar->out, "compiling kernels for this device, once: %d of %d", p->compiling, p->to_compile);
        return;
    }
    fprintf(bar->out, "epoch %lld/%lld ", (long long)p->epoch, (long long)p->epochs);
    double share = p->batches > 0 ? (double)p->batch / (double)p->batches : 0;
    if (bar->terminal) cells(bar, share);
    else fprintf(bar->out, " %3.0f %%", 100 * share);
    figures(bar->out, p);
}

void clef__bar_progress(clef__bar *bar, const clef_progress *progress) {
    if (!bar->out) return;
    double now = clef__seconds();
    if (bar->terminal) {
        fputs("\r\033[K", bar->out);
        line(bar, progress);
        bar->open = true;
    } else if (now - bar->last >= plain_interval) {
        line(bar, progress);
        fputc('\n', bar->out);
        bar->last = now;
    }
    fflush(bar->out);
}

void clef__bar_epoch(clef__bar *bar, const clef_epoch *epoch, int64_t epochs) {
    if (!bar->out) return;
    if (bar->terminal) fputs("\r\033[K", bar->out);
    fprintf(bar->out, "epoch %lld/%lld  loss %.4f", (long long)epoch->epoch, (long long)epochs, epoch->loss);
    percent(bar->out, "accuracy", epoch->accuracy);
    if (isfinite(epoch->test_loss)) fprintf(bar->out, "  test loss %.4f", epoch->test_loss);
    percent(bar->out, "test accuracy", epoch->test_accuracy);
    fprintf(bar->out, "  %.0f/s  %.1f s\n", epoch->items_per_second, epoch->seconds);
    fflush(bar->out);
    bar->open = false;
    bar->last = clef__seconds();
}

void clef__bar_close(clef__bar *bar) {
    if (!bar->out || !bar->open) return;
    fputs("\r\033[K", bar->out);
    fflush(bar->out);
    bar->open = false;
}
