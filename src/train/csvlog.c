/* csvlog.c — one line per epoch; resuming drops the lines that will be written again. */
#include "train/train_internal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "epoch,loss,accuracy,test_loss,test_accuracy,lr,seconds,items_per_second\n";

static clef_status failed(clef__fit *f) {
    return clef__fail(f->ctx, CLEF_IO, "fit: cannot write the CSV file %s: %s", f->o->csv, strerror(errno));
}

/* The lines of a former part of this run that stay, as a new string; NULL: none. */
static char *lines_to_keep(const clef__fit *f) {
    FILE *file = f->done > 0 ? fopen(f->o->csv, "r") : NULL;
    char line[512], *kept = NULL;
    if (!file) return NULL;
    while (fgets(line, sizeof line, file)) {
        long long epoch = strtoll(line, NULL, 10);
        if (epoch < 1 || epoch > f->done || !strchr(line, '\n')) continue;
        char *longer = clef__format("%s%s", kept ? kept : "", line);
        clef__free(kept);
        kept = longer;
    }
    fclose(file);
    return kept;
}

clef_status clef__csv_begin(clef__fit *f) {
    char *kept = lines_to_keep(f);
    FILE *file = fopen(f->o->csv, "w");
    bool ok = file && fputs(header, file) >= 0 && (!kept || fputs(kept, file) >= 0);
    if (file && fclose(file)) ok = false;
    clef__free(kept);
    return ok ? CLEF_OK : failed(f);
}

/* A number with a point in every locale; nothing where there is none. */
static void cell(FILE *file, double value, const char *end) {
    char text[32] = "";
    if (isfinite(value)) snprintf(text, sizeof text, "%.9g", value);
    for (char *comma = strchr(text, ','); comma; comma = NULL) *comma = '.';
    fprintf(file, "%s%s", text, end);
}

clef_status clef__csv_line(clef__fit *f, const clef_epoch *epoch) {
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
