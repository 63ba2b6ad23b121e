/* verb_devices.c — clef devices: what OpenCL offers, which device would be used, and what is known of the drivers. */
#include "devices_plan.h"
#include <string.h>

typedef struct devices_options {
    common_options common;
    bool probe;
    const char *plan, *devices;
    int64_t batch;
} devices_options;
static devices_options o;

typedef void printer(clef_context *ctx, const clef_device_info *d, bool chosen);

static bool unknown; /* some verdict that was shown */

static const char *word(clef_verdict verdict) {
    unknown |= verdict == CLEF_VERDICT_UNKNOWN;
    static const char *const words[] = {"unknown", "no", "yes"};
    return words[verdict];
}

static const char *json_word(clef_verdict verdict) {
    static const char *const words[] = {"null", "false", "true"};
    return words[verdict];
}

/* events: with each device of the list, itself too. */
static void verdicts_as_json(json *j, clef_context *ctx, int index) {
    json_key(j, "events");
    for (int i = 0; i < clef_device_count(); i++)
        fprintf(j->out, "%c%s", i ? ',' : '[', json_word(clef_device_events(ctx, index, i, o.probe)));
    fputc(']', j->out);
    json_key(j, "user_events");
    fputs(json_word(clef_device_user_events(ctx, index, o.probe)), j->out);
}

static void verdicts_as_text(clef_context *ctx, const clef_device_info *d) {
    clef_device_info other;
    printf("     events between queues: %s", word(clef_device_events(ctx, d->index, d->index, o.probe)));
    for (int i = 0; i < clef_device_count(); i++)
        if (i != d->index && clef_device_get(i, &other) && !strcmp(other.platform, d->platform))
            printf(", with device %d: %s", i, word(clef_device_events(ctx, d->index, i, o.probe)));
    printf("; user events: %s\n", word(clef_device_user_events(ctx, d->index, o.probe)));
}

static void as_json(clef_context *ctx, const clef_device_info *d, bool chosen) {
    json j = json_begin(stdout);
    json_whole(&j, "index", d->index);
    json_bool(&j, "default", chosen);
    json_text(&j, "name", d->name);
    json_text(&j, "type", d->type);
    json_text(&j, "vendor", d->vendor);
    json_text(&j, "platform", d->platform);
    json_text(&j, "platform_version", d->platform_version);
    json_text(&j, "version", d->version);
    json_text(&j, "driver", d->driver);
    json_whole(&j, "compute_units", d->compute_units);
    json_whole(&j, "clock_mhz", d->clock_mhz);
    json_whole(&j, "vector_width", d->vector_width);
    json_whole(&j, "global_bytes", (int64_t)d->global_bytes);
    json_whole(&j, "max_alloc_bytes", (int64_t)d->max_alloc_bytes);
    json_whole(&j, "local_bytes", (int64_t)d->local_bytes);
    json_whole(&j, "max_work_group", (int64_t)d->max_work_group);
    json_bool(&j, "f16", d->f16);
    json_bool(&j, "f64", d->f64);
    verdicts_as_json(&j, ctx, d->index);
    json_end(&j);
}

static void as_text(clef_context *ctx, const clef_device_info *d, bool chosen) {
    printf("%c %d  %s (%s)\n", chosen ? '*' : ' ', d->index, d->name, d->type);
    printf("     %s, driver %s, %s\n", d->platform, d->driver, d->version);
    printf("     %u units at %u MHz, %.1f GiB (%.1f GiB at once), %llu KiB local, groups up to %zu%s%s\n", d->compute_units,
           d->clock_mhz, (double)d->global_bytes / (1 << 30), (double)d->max_alloc_bytes / (1 << 30),
           (unsigned long long)d->local_bytes / 1024, d->max_work_group, d->f64 ? ", f64" : "", d->f16 ? ", f16" : "");
    verdicts_as_text(ctx, d);
}

/* All devices: "0,1,2". */
static bool list_all(char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < clef_device_count() && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? "," : "", i);
    return used > 0 && used < size;
}

static int plan_model(void) {
    char list[1024];
    devices_plan p = {.common = &o.common, .list.devices = o.devices, .work.model = o.plan, .batch = o.batch};
    if (!source_parse("devices", model_data(o.plan), &p.work.data)) return EXIT_USAGE;
    if (!o.batch) p.batch = p.work.data.batch;
    if (!o.devices && list_all(list, sizeof list)) p.list.devices = list;
    if (!p.list.devices) return tool_failed("devices", NULL), EXIT_NO_DEVICE;
    if (!ranks_parse("devices", &o.common, &p.list)) return EXIT_USAGE;
    return ranks_run("devices", &o.common, &p.list, devices_plan_rank, &p);
}

static int run_devices(const char *const *operands) {
    (void)operands;
    int code = EXIT_OK;
    if ((o.batch || o.devices) && !o.plan) return tool_usage("devices", "--batch and --devices belong to --plan MODEL");
    if (o.plan && o.probe) return tool_usage("devices", "--plan and --probe are two commands");
    if (o.plan) return plan_model();
    clef_context *ctx = tool_open("devices", &o.common, &code);
    if (!ctx) return code;
    printer *print = o.common.json ? as_json : as_text;
    clef_device_info chosen, info;
    clef_context_device(ctx, 0, &chosen);
    for (int i = 0; i < clef_device_count(); i++)
        if (clef_device_get(i, &info)) print(ctx, &info, info.index == chosen.index);
    clef_close(ctx);
    if (o.common.json || o.common.quiet) return EXIT_OK;
    fprintf(stderr, "* is used unless --device or CLEF_DEVICE says otherwise\n");
    if (unknown && !o.probe) fprintf(stderr, "--probe tries what is unknown of a driver, in processes of its own\n");
    return EXIT_OK;
}

#define OPTIONS devices_options
static const arg args[] = {OPTION("probe", ARG_FLAG, NULL, probe, "try what is not known yet of the drivers' events"),
                           OPTION("plan", ARG_CHOICE, MODEL_META, plan,
                                  "measure training steps of this model, and say how the devices would share its batches"),
                           OPTION("batch", ARG_COUNT, "N", batch, "of --plan; default: that of clef train for the model's data"),
                           OPTION("devices", ARG_TEXT, "D,E,...", devices, "of --plan: these; default: all"), COMMON_ARGS};
const verb verb_devices = {"devices", NULL, "List the OpenCL devices.", args, &o, run_devices};
