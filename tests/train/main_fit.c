/* main_fit.c — a short run with everything switched on, as a plain program for the sanitizers. */
#include "support/plain.h"
#include "train/train_support.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, clef_error(r.ctx)); \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int run(const char *dir, const char *csv, const char *svg, int64_t epochs) {
    rig r = rig_open((rig_options){.limit = 128, .dropout = true, .scheduled = true});
    CHECK(r.ctx);
    const clef_history *history;
    clef_fit_options options = rig_fit(&r);
    FILE *bar = tmpfile();
    options.epochs = epochs;
    options.checkpoint_dir = dir;
    options.resume = true;
    options.keep = 1;
    options.checkpoint_every = 2;
    options.clip_norm = 1;
    options.early_stop_patience = 5;
    options.csv = csv;
    options.bar = bar;
    CHECK(clef_fit(r.net, &options, &history) == CLEF_OK);
    CHECK(history->n == 1);
    clef_evaluation_result e;
    CHECK(clef_evaluate(r.net, r.test, NULL, NULL, &e) == CLEF_OK);
    CHECK(e.items == 360 && e.classes == 10);
    CHECK(clef_confusion_svg(r.ctx, &e, clef_loader_dataset(r.test), svg) == CLEF_OK);
    clef_close(r.ctx);
    fclose(bar);
    return 0;
}

int main(void) {
    char dir[64], csv[128], svg[128];
    if (clef_device_count() == 0) return without_context();
    if (!fresh_directory(dir)) return 1;
    snprintf(csv, sizeof csv, "%s/log.csv", dir);
    snprintf(svg, sizeof svg, "%s/confusion.svg", dir);
    int failed = run(dir, csv, svg, 1) || run(dir, csv, svg, 2);
    remove_directory(dir);
    if (!failed) printf("ok\n");
    return failed;
}
