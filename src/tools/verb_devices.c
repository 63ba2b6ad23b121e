/* verb_devices.c — clef devices: what OpenCL offers, and which device would be used. */
#include "tool.h"

static common_options o;

static void as_json(const clef_device_info *d, bool chosen) {
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
    json_end(&j);
}

static void as_text(const clef_device_info *d, bool chosen) {
    printf("%c %d  %s (%s)\n", chosen ? '*' : ' ', d->index, d->name, d->type);
    printf("     %s, driver %s, %s\n", d->platform, d->driver, d->version);
    printf("     %u units at %u MHz, %.1f GiB (%.1f GiB at once), %llu KiB local, groups up to %zu%s%s\n", d->compute_units,
           d->clock_mhz, (double)d->global_bytes / (1 << 30), (double)d->max_alloc_bytes / (1 << 30),
           (unsigned long long)d->local_bytes / 1024, d->max_work_group, d->f64 ? ", f64" : "", d->f16 ? ", f16" : "");
}

static int run_devices(const char *const *operands) {
    (void)operands;
    int code = EXIT_OK;
    clef_context *ctx = tool_open("devices", &o, &code);
    if (!ctx) return code;
    clef_device_info chosen, info;
    clef_context_device(ctx, 0, &chosen);
    clef_close(ctx);
    for (int i = 0; i < clef_device_count(); i++) {
        if (!clef_device_get(i, &info)) continue;
        (o.json ? as_json : as_text)(&info, info.index == chosen.index);
    }
    if (!o.json && !o.quiet) fprintf(stderr, "* is used unless --device or CLEF_DEVICE says otherwise\n");
    return EXIT_OK;
}

static const arg args[] = {COMMON_ARGS};
const verb verb_devices = {"devices", NULL, "List the OpenCL devices.", args, &o, run_devices};
