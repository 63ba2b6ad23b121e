/* tuning_support.h — for tests of tuning: a cache directory of their own, and results put there by hand. */
#ifndef CLEF_TESTS_TUNING_SUPPORT_H
#define CLEF_TESTS_TUNING_SUPPORT_H
#include "plan/tune/tune.h"
#include "support/device.h"
#include "support/io_files.h"

/* What was logged as a warning since the last context was opened. */
static char warnings[8192];

static inline void note_warning(void *user, clef_log_level level, const char *line) {
    (void)user;
    size_t used = strlen(warnings);
    if (level == CLEF_LOG_WARNING) snprintf(warnings + used, sizeof warnings - used, "%s\n", line);
}

static inline clef_context *open_in(const char *dir) {
    warnings[0] = 0;
    return open_or_skip(&(clef_options){.cache_dir = dir, .log = note_warning});
}

/* The benchmarks that evaluating t would make. */
static inline clef__benchmarks benchmarks_of(clef_context *ctx, clef_tensor *t) {
    clef__benchmarks found = {0};
    clef__plans *plans = clef__plans_of(ctx);
    clef_set_dry_run(ctx, true);
    plans->selection.note = clef__benchmark_note;
    plans->selection.user = &found;
    cr_assert_eq(clef_eval(t), CLEF_OK, "%s", clef_error(ctx));
    plans->selection.note = NULL;
    clef_set_dry_run(ctx, false);
    return found;
}

/* Keeps these knobs for every benchmark of this family ("": all) that evaluating t makes; returns how many. */
static inline int keep_for(clef_context *ctx, clef_tensor *t, const char *family, const clef__knobs *knobs) {
    clef__benchmarks found = benchmarks_of(ctx, t);
    int kept = 0;
    for (int i = 0; i < found.n; i++) {
        const clef__tuning_key *key = &found.benchmark[i].key;
        if (*family && strcmp(key->family->name, family) != 0) continue;
        clef__tuned result = clef__tuning_key_result(key, knobs);
        cr_assert_eq(clef__tuned_keep(clef__device_at(ctx, key->device), &result, 1), CLEF_OK);
        kept++;
    }
    clef__benchmark_free(&found);
    clef__plans_forget(ctx);
    return kept;
}
#endif
