/* Any bytes as a checkpoint: a verdict with a line and nothing changed, or numbers with which a run could go on.

   A checksum cannot be guessed, so half of the inputs get a right one: what it protects is then what is tested. */
#include "support/sealed.h"
#include "train/train_internal.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(io_bytes file, bool all, bool extras) {
    static char part; /* what the parts are is not looked at */
    clef_checkpoint what = {.epoch = 4711, .metric = 0.5, .note_out = "untouched"}, seen = what;
    if (all) what.optimizer = (void *)&part, what.schedule = (void *)&part, what.loader = (void *)&part;
    double real = 0;
    int64_t whole = 0;
    char text[8] = "";
    clef_extra extra[] = {
        {.name = "r", .real = &real}, {.name = "w", .whole = &whole}, {.name = "t", .text = text, .size = sizeof text}};
    if (extras) what.averaged = (void *)&part, what.scaler = (void *)&part, what.extra = extra, what.n_extra = 3;
    clef__report report = {0};
    clef__place place = {0};
    clef__reader reader = clef__reader_memory(file.data, file.size);
    if (clef__checkpoint_examine(&reader, &what, &seen, &report) != CLEF_OK) {
        if (!report.text[0] || strchr(report.text, '\n') || strcmp(seen.note_out, "untouched") != 0 || seen.epoch != 4711) abort();
        if (real != 0 || whole != 0 || text[0]) abort();
        return;
    }
    if (strlen(seen.note_out) >= sizeof seen.note_out || !clef__utf8_valid(seen.note_out)) abort();
    (void)clef__place_parse(seen.note_out, &place);
    if (file.size > 0) { /* a byte less is another file */
        file.size--;
        report = (clef__report){0};
        reader = clef__reader_memory(file.data, file.size);
        if (clef__checkpoint_examine(&reader, &what, &seen, &report) == CLEF_OK) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    io_bytes file = {malloc(size), size - 1};
    memcpy(file.data, bytes + 1, file.size);
    if (bytes[0] & 1) sealed_seal(file);
    check(file, bytes[0] & 2, bytes[0] & 4);
    free(file.data);
    return 0;
}
