/* csvlog.c — one line per epoch; resuming drops the lines that will be written again, by a new file in the old one's place. */
#include "train/train_internal.h"
#include "io/io_internal.h"
#include "runtime/text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "epoch,loss,accuracy,test_loss,test_accuracy,lr,seconds,items_per_second\n";

static clef_status failed(clef__fit *f) {
    return clef__fail(f->ctx, CLEF_IO, "fit: cannot write the CSV file %s: %s", f->o->csv, strerror(errno));
}

/* The lines of a former part of this run that stay; nothing where there is none. */
static void lines_to_keep(const clef__fit *f, clef__text *kept) {
    FILE *file = f->done > 0 ? fopen(f->o->csv, "r") : NULL;
    char line[512];
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        long long epoch = strtoll(line, NULL, 10);
        if (epoch >= 1 && epoch <= f->done && strchr(line, '\n')) clef__text_append(kept, line);
    }
    fclose(file);
}

static clef_status replace_file(clef__fit *f, const clef__text *kept) {
    clef__report report = {0};
    clef__writer writer;
    if (kept->failed) clef__report_set(&report, CLEF_MEMORY, "no memory for its lines");
    else if (clef__writer_open(&writer, f->o->csv, &report) == CLEF_OK) {
        clef__writer_put(&writer, header, strlen(header));
        clef__writer_put(&writer, kept->data, kept->length);
        clef__writer_commit(&writer);
    }
    return report.status ? clef__report_fail(f->ctx, "fit: the CSV file", f->o->csv, &report) : CLEF_OK;
}

static clef_status new_file(clef__fit *f) {
    FILE *file = fopen(f->o->csv, "w");
    bool ok = file && fputs(header, file) >= 0;
    if (file && fclose(file)) ok = false;
    return ok ? CLEF_OK : failed(f);
}

clef_status clef__csv_begin(clef__fit *f) {
    clef__text kept = {0};
    if (!f->o->csv) return CLEF_OK;
    lines_to_keep(f, &kept);
    clef_status status = kept.data || kept.failed ? replace_file(f, &kept) : new_file(f);
    clef__free(kept.data);
    return status;
}

/* A number with a point in every locale; nothing where there is none. */
static void cell(FILE *file, double value, const char *end) {
    char text[32] = "";
    if (isfinite(value)) snprintf(text, sizeof text, "%.9g", value);
    clef__point(text);
    fprintf(file, "%s%s", text, end);
}

clef_status clef__csv_line(clef__fit *f) {
    const clef_epoch *epoch = f->ended;
    FILE *file = fopen(f->o->csv, "a");
    if (!file) return failed(f);
    fprintf(file, "%lld,", (long long)epoch->epoch);
    cell(file, epoch->loss, ",");
    cell(file, epoch->accuracy, ",");
    cell(file, epoch->test_loss, ",");
    cell(file, epoch->test_accuracy, ",");
    cell(file, epoch->lr, ",");
    cell(file, epoch->seconds, ",");
    cell(file, epoch->items_per_second, "\n");
    bool bad = ferror(file);
    return fclose(file) || bad ? failed(f) : CLEF_OK;
}
