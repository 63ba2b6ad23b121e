/* progress.c — a bar that rewrites its line on a terminal, a plain line every few seconds elsewhere.

   No line is wider than 80 columns or the terminal, where that is narrower: a figure that has no room any more is left out,
   the least important ones being last. */
#include "train/train_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double plain_interval = 5;
enum { CELLS = 20, WIDEST = 80, NARROWEST = 20 };

/* The last column stays free, as some terminals move on when it is filled. */
static int width_of(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col == 0 || size.ws_col > WIDEST) return WIDEST - 1;
    return size.ws_col > NARROWEST ? size.ws_col - 1 : NARROWEST;
}

void clef__bar_init(clef__bar *bar, FILE *out) {
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *bar = (clef__bar){.out = out, .last = clef__now()};
    bar->terminal = out && isatty(fileno(out)) && term && strcmp(term, "dumb");
    bar->color = bar->terminal && !(no_color && *no_color);
}

/* ---- a line of figures ---- */
typedef struct line {
    char text[WIDEST + 1];
    int used, width;
    bool full;
} line;

static line line_begin(const clef__bar *bar) { return (line){.width = bar->terminal ? width_of(bar->out) : WIDEST}; }

/* Adds it, if it and all before it have room. */
__attribute__((format(printf, 2, 3))) static void put(line *l, const char *fmt, ...) {
    char text[WIDEST + 2];
    va_list arguments;
    va_start(arguments, fmt);
    int n = vsnprintf(text, sizeof text, fmt, arguments);
    va_end(arguments);
    if (n < 0 || n > l->width - l->used) l->full = true;
    if (l->full) return;
    memcpy(l->text + l->used, text, (size_t)n + 1);
    l->used += n;
}

/* Nothing where it is undefined. */
static void put_loss(line *l, const char *name, double loss) {
    if (isfinite(loss)) put(l, fabs(loss) < 1e5 ? "  %s %.4f" : "  %s %.3g", name, loss);
}

static void put_percent(line *l, const char *name, double share) {
    if (isfinite(share)) put(l, "  %s %.2f %%", name, 100 * share);
}

static void put_eta(line *l, double seconds) {
    if (!isfinite(seconds) || seconds < 0) return;
    long s = (long)(fmin(seconds, 1e9) + 0.5);
    if (s >= 3600) put(l, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else put(l, "  ETA %ld:%02ld", s / 60, s % 60);
}

static void put_figures(line *l, const clef_progress *p) {
    put_loss(l, "loss", p->loss);
    put_percent(l, "acc", p->accuracy);
    if (p->items_per_second > 0) put(l, "  %.0f/s", p->items_per_second);
    put_eta(l, p->eta);
}

/* As many cells as have room beside the figures; too few say nothing. */
static void draw_cells(const clef__bar *bar, double share, int room) {
    int n = room - (bar->color ? 0 : 2);
    if (n > CELLS) n = CELLS;
    if (n < CELLS / 4) return;
    int done = share < 1 ? (int)(share * n) : n;
    fputs(bar->color ? "\033[32m" : "[", bar->out);
    for (int i = 0; i < n; i++) {
        if (i == done && bar->color) fputs("\033[90m", bar->out);
        fputs(bar->color ? "\xe2\x94\x81" : i < done ? "=" : i == done ? ">" : " ", bar->out);
    }
    fputs(bar->color ? "\033[0m" : "]", bar->out);
}

static void show_compiling(const clef__bar *bar, const clef_progress *p) {
    line l = line_begin(bar);
    put(&l, "compiling kernels for this device, once: %d of %d", p->compiling, p->to_compile);
    if (l.full) fprintf(bar->out, "compiling %d of %d", p->compiling, p->to_compile);
    fputs(l.text, bar->out);
}

static void show(const clef__bar *bar, const clef_progress *p) {
    line head = line_begin(bar), figures = head;
    double share = p->batches > 0 ? (double)p->batch / (double)p->batches : 0;
    put(&head, "epoch %lld/%lld ", (long long)p->epoch, (long long)p->epochs);
    if (!bar->terminal) put(&head, " %3.0f %%", 100 * share);
    figures.width -= head.used;
    put_figures(&figures, p);
    fputs(head.text, bar->out);
    if (bar->terminal) draw_cells(bar, share, figures.width - figures.used);
    fputs(figures.text, bar->out);
}

void clef__bar_progress(clef__bar *bar, const clef_progress *progress) {
    if (!bar->out) return;
    double now = clef__now();
    if (bar->terminal) {
        fputs("\r\033[K", bar->out);
        (progress->compiling < progress->to_compile ? show_compiling : show)(bar, progress);
        bar->open = true;
    } else if (now - bar->last >= plain_interval) {
        (progress->compiling < progress->to_compile ? show_compiling : show)(bar, progress);
        fputc('\n', bar->out);
        bar->last = now;
    }
    fflush(bar->out);
}

void clef__bar_epoch(clef__bar *bar, const clef_epoch *epoch, int64_t epochs) {
    if (!bar->out) return;
    line l = line_begin(bar);
    if (bar->terminal) fputs("\r\033[K", bar->out);
    put(&l, "epoch %lld/%lld", (long long)epoch->epoch, (long long)epochs);
    put_loss(&l, "loss", epoch->loss);
    put_percent(&l, "acc", epoch->accuracy);
    put_loss(&l, "test", epoch->test_loss);
    put_percent(&l, "acc", epoch->test_accuracy);
    put(&l, "  %.0f/s", epoch->items_per_second);
    put(&l, "  %.1f s", epoch->seconds);
    fputs(l.text, bar->out);
    fputc('\n', bar->out);
    fflush(bar->out);
    bar->open = false;
    bar->last = clef__now();
}

void clef__bar_close(clef__bar *bar) {
    if (!bar->out || !bar->open) return;
    fputs("\r\033[K", bar->out);
    fflush(bar->out);
    bar->open = false;
}
