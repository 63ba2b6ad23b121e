/* confusion.c — the confusion matrix as text and as a picture. */
#include "train/train_internal.h"
#include "io/io_internal.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* snprintf that goes on where the last one ended and keeps counting when the room is used up. */
typedef struct text_sink {
    char *text;
    size_t size, length;
} text_sink;

__attribute__((format(printf, 2, 3))) static void put(text_sink *sink, const char *fmt, ...) {
    va_list arguments;
    bool room = sink->length < sink->size;
    va_start(arguments, fmt);
    int n = vsnprintf(room ? sink->text + sink->length : NULL, room ? sink->size - sink->length : 0, fmt, arguments);
    va_end(arguments);
    if (n > 0) sink->length += (size_t)n;
}

static const char *name_of(const clef_dataset *names, int64_t c, char number[24]) {
    const char *name = names ? clef_dataset_class_name(names, c) : NULL;
    if (name && *name) return name;
    snprintf(number, 24, "%lld", (long long)c);
    return number;
}

int clef_confusion_text(const clef_evaluation_result *result, const clef_dataset *names, char *text, size_t size) {
    text_sink sink = {text, text ? size : 0, 0};
    char number[24];
    if (sink.size > 0) text[0] = 0;
    if (!result || !result->confusion) return 0;
    int64_t n = result->classes, largest = 0;
    for (int64_t i = 0; i < n * n; i++) largest = result->confusion[i] > largest ? result->confusion[i] : largest;
    int width = snprintf(NULL, 0, "%lld", (long long)largest), label = 5;
    for (int64_t c = 0; c < n; c++) {
        int length = (int)strlen(name_of(names, c, number));
        label = length > label ? length : label;
    }
    width = width < 4 ? 5 : width + 1;
    put(&sink, "%-*s", label, "truth");
    for (int64_t c = 0; c < n; c++) put(&sink, " %*.*s", width - 1, width - 1, name_of(names, c, number));
    put(&sink, "  recall  precision\n");
    for (int64_t row = 0; row < n; row++) {
        put(&sink, "%-*s", label, name_of(names, row, number));
        for (int64_t c = 0; c < n; c++) put(&sink, "%*lld", width, (long long)result->confusion[row * n + c]);
        put(&sink, "  %5.1f %%    %5.1f %%\n", 100 * result->recall[row], 100 * result->precision[row]);
    }
    return (int)sink.length;
}

/* ---- SVG ---- */
enum { CELL = 36, MARGIN = 96 };

static void put_escaped(clef__text *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<') clef__text_put(out, "&lt;", 4);
        else if (*text == '&') clef__text_put(out, "&amp;", 5);
        else clef__text_put(out, text, 1);
    }
}

static void svg_cell(clef__text *out, int64_t row, int64_t column, int64_t count, int64_t in_row) {
    double share = in_row > 0 ? (double)count / (double)in_row : 0, shade = sqrt(share);
    int red = (int)(247 - shade * 239), green = (int)(251 - shade * 203), blue = (int)(255 - shade * 148);
    long long x = MARGIN + column * CELL, y = MARGIN + row * CELL;
    clef__text_add(out, "<rect x=\"%lld\" y=\"%lld\" width=\"%d\" height=\"%d\" fill=\"rgb(%d,%d,%d)\"/>", x, y, CELL - 1, CELL - 1,
                   red, green, blue);
    if (count > 0)
        clef__text_add(out, "<text x=\"%lld\" y=\"%lld\" text-anchor=\"middle\" fill=\"%s\">%lld</text>", x + CELL / 2,
                       y + CELL / 2 + 4, shade > 0.6 ? "white" : "black", (long long)count);
    clef__text_put(out, "\n", 1);
}

static void svg_labels(clef__text *out, const clef_dataset *names, int64_t n) {
    char number[24];
    for (int64_t c = 0; c < n; c++) {
        long long middle = MARGIN + c * CELL + CELL / 2;
        clef__text_add(out, "<text x=\"%d\" y=\"%lld\" text-anchor=\"end\">", MARGIN - 6, middle + 4);
        put_escaped(out, name_of(names, c, number));
        clef__text_add(out, "</text><text transform=\"translate(%lld,%d) rotate(-60)\">", middle, MARGIN - 6);
        put_escaped(out, name_of(names, c, number));
        clef__text_add(out, "</text>\n");
    }
}

static void svg(clef__text *out, const clef_evaluation_result *result, const clef_dataset *names) {
    int64_t n = result->classes;
    long long side = MARGIN + n * CELL + 16;
    clef__text_add(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" "
                   "font-family=\"sans-serif\" font-size=\"11\">\n",
                   side, side);
    clef__text_add(out,
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"6\" y=\"16\">"
                   "rows: truth, columns: guess; accuracy %.2f %%</text>\n",
                   100 * result->accuracy);
    svg_labels(out, names, n);
    for (int64_t row = 0; row < n; row++) {
        int64_t in_row = 0;
        for (int64_t c = 0; c < n; c++) in_row += result->confusion[row * n + c];
        for (int64_t c = 0; c < n; c++) svg_cell(out, row, c, result->confusion[row * n + c], in_row);
    }
    clef__text_add(out, "</svg>\n");
}

clef_status clef_confusion_svg(clef_context *ctx, const clef_evaluation_result *result, const clef_dataset *names,
                               const char *path) {
    if (!result || !result->confusion || !path)
        return clef__fail(ctx, CLEF_INVALID, "confusion_svg: there is no confusion matrix or no path");
    clef__text text = {0};
    clef__report report = {0};
    clef__writer writer = {0};
    svg(&text, result, names);
    if (text.failed) clef__report_set(&report, CLEF_MEMORY, "no memory for the picture");
    else if (!clef__writer_open(&writer, path, &report)) {
        if (!clef__writer_put(&writer, text.data, text.length)) clef__writer_commit(&writer);
        clef__writer_abort(&writer);
    }
    clef__free(text.data);
    return report.status ? clef__report_fail(ctx, "confusion_svg", path, &report) : CLEF_OK;
}
