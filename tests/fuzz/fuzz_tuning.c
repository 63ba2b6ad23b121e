/* Any bytes as a file of tuning results: a verdict, and what was understood comes back as it was after writing and reading. */
#include "runtime/runtime_internal.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void expect_same(const clef__tuned *a, const clef__tuned *b) {
    bool same = strcmp(a->bucket, b->bucket) == 0 && strcmp(a->device, b->device) == 0 && strcmp(a->kernel, b->kernel) == 0 &&
                a->units == b->units && a->ns == b->ns && a->n_knobs == b->n_knobs;
    for (int i = 0; same && i < a->n_knobs; i++)
        same = strcmp(a->knob[i].name, b->knob[i].name) == 0 && a->knob[i].value == b->knob[i].value;
    if (!same) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    clef__tuning tuning = {0};
    int damaged;
    if (!clef__tuning_merge(&tuning, (const char *)bytes, size, &damaged)) return 0;
    for (int i = 0; i < tuning.n; i++) {
        const clef__tuned *t = &tuning.entry[i].t;
        clef__text text = {0};
        clef__tuned again;
        if (!tuning.entry[i].parts) continue;
        clef__tuned_put(&text, t);
        if (!text.data) continue;
        text.data[strcspn(text.data, "\n")] = 0;
        if (!clef__tuned_parse(text.data, &again)) abort();
        expect_same(t, &again);
        clef__free(text.data);
    }
    clef__tuning_free(&tuning);
    return 0;
}
