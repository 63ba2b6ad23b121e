/* verb_cache.c — clef cache: the compiled kernels on disk. */
#include "tool.h"
#include <string.h>

typedef struct cache_options {
    common_options common;
    const char *dir;
} cache_options;
static cache_options o;

static int failed(void) { return tool_failed("cache", NULL); }

static int clear(void) {
    uint64_t removed = 0;
    if (clef_cache_clear(o.dir, &removed)) return failed();
    if (o.common.json) {
        json j = json_begin(stdout);
        json_whole(&j, "removed", (int64_t)removed);
        json_end(&j);
    } else printf("%llu entries removed\n", (unsigned long long)removed);
    return EXIT_OK;
}

static void show(const clef_cache_info *info, bool verified) {
    if (o.common.json) {
        json j = json_begin(stdout);
        json_text(&j, "dir", *info->dir ? info->dir : NULL);
        json_whole(&j, "entries", (int64_t)info->entries);
        json_whole(&j, "bytes", (int64_t)info->bytes);
        if (verified) { /* only reading them tells */
            json_whole(&j, "failed_builds", (int64_t)info->negative);
            json_whole(&j, "damaged", (int64_t)info->damaged);
        }
        json_end(&j);
        return;
    }
    if (!*info->dir) {
        printf("no directory, memory only\n");
        return;
    }
    printf("%s: %llu entries, %.1f MB\n", info->dir, (unsigned long long)info->entries, (double)info->bytes / 1e6);
    if (verified)
        printf("%llu failed builds, %llu damaged\n", (unsigned long long)info->negative, (unsigned long long)info->damaged);
}

static int run_cache(const char *const *operands) {
    clef_cache_info info;
    const char *operand = operands[0];
    if (operand && !strcmp(operand, "clear")) return clear();
    bool verify = operand && !strcmp(operand, "verify");
    if (clef_cache_inspect(o.dir, verify, &info)) return failed();
    show(&info, verify);
    return verify && info.damaged ? EXIT_FAILED : EXIT_OK;
}

static const arg args[] = {{"dir", ARG_TEXT, "DIR", offsetof(cache_options, dir), "another directory than the default"},
                           COMMON_ARGS};
const verb verb_cache = {"cache", "show|verify|clear", "Show, check or empty the cache of compiled kernels.", args, &o, run_cache};
