/* Listing and choosing devices, profiles, and machines without any.  Every test runs in a process of its own, so
   the environment can be set before OpenCL starts. */
#include "runtime_support.h"
#include "support/programs.h"
#include <criterion/criterion.h>

static clef_context *open_device(const char *device) { return clef_open(&(clef_options){.device = device, .cache_dir = ""}); }

/* The drivers that the tests ask for by name may be missing where somebody else runs them. */
static void only_pocl(const char *devices) {
    setenv("POCL_DEVICES", devices, 1);
    unsetenv("RUSTICL_ENABLE");
    unsetenv("CLEF_DEVICE");
    clef_device_info info;
    bool pocl = false;
    for (int i = 0; clef_device_get(i, &info); i++) pocl = pocl || strcmp(info.platform, "Portable Computing Language") == 0;
    if (!pocl) cr_skip_test("pocl is not installed (pocl-opencl-icd)");
}

Test(devices, facts) {
    clef_device_info info, none;
    int n = clef_device_count();
    if (n == 0) cr_skip_test("%s", clef_error(NULL));
    for (int i = 0; i < n; i++) {
        cr_assert(clef_device_get(i, &info));
        cr_assert_eq(info.index, i);
        cr_assert_neq(info.name[0], 0);
        cr_assert(strcmp(info.type, "cpu") == 0 || strcmp(info.type, "gpu") == 0 || strcmp(info.type, "accelerator") == 0 ||
                  strcmp(info.type, "other") == 0);
        cr_assert_gt(info.max_work_group, 0u);
        cr_assert_gt(info.max_alloc_bytes, 0u);
    }
    cr_assert_not(clef_device_get(n, &none));
    cr_assert_not(clef_device_get(-1, &none));
    cr_assert_not(clef_device_get(0, NULL));
}

Test(devices, choice) {
    only_pocl("pthread basic");
    clef_device_info a, b, got;
    cr_assert_eq(clef_device_count(), 2);
    clef_device_get(0, &a);
    clef_device_get(1, &b);
    static const char *const by_name[] = {"pthread", "PTHREAD-", "basic", "0", "1", "cpu", "CPU", "portable computing"};
    const clef_device_info *pthread_one = strstr(a.name, "pthread") ? &a : &b, *basic = pthread_one == &a ? &b : &a;
    /* two units beat one, so the pthread device is the best */
    const clef_device_info *best = pthread_one->compute_units >= basic->compute_units ? pthread_one : basic;
    const clef_device_info *want[] = {pthread_one, pthread_one, basic, &a, &b, best, best, best};
    for (size_t i = 0; i < sizeof by_name / sizeof by_name[0]; i++) {
        clef_context *ctx = open_device(by_name[i]);
        cr_assert_not_null(ctx, "%s: %s", by_name[i], clef_error(NULL));
        cr_assert(clef_context_device(ctx, 0, &got));
        cr_assert_eq(got.index, want[i]->index, "%s gave %s", by_name[i], got.name);
        cr_assert_eq(clef_context_device_count(ctx), 1);
        cr_assert_not(clef_context_device(ctx, 1, &got));
        clef_close(ctx);
    }
}

Test(devices, environment) {
    only_pocl("pthread basic");
    clef_device_info got;
    setenv("CLEF_DEVICE", "basic", 1);
    clef_context *ctx = open_device(NULL);
    cr_assert_not_null(ctx);
    clef_context_device(ctx, 0, &got);
    cr_assert_not_null(strstr(got.name, "basic"));
    clef_close(ctx);
    ctx = open_device("pthread"); /* the option is stronger */
    clef_context_device(ctx, 0, &got);
    cr_assert_not_null(strstr(got.name, "pthread"));
    clef_close(ctx);
}

Test(devices, several) {
    only_pocl("pthread basic");
    clef_device_info got;
    clef_context *ctx = open_device("1, 0");
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
    cr_assert_eq(clef_context_device_count(ctx), 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(clef_context_device(ctx, i, &got));
        cr_assert_eq(got.index, 1 - i);
        cr_assert(add_works(clef__device_at(ctx, i), add_source), "%s", clef_error(ctx));
        cr_assert_eq(clef__device_at(ctx, i)->ctx, ctx);
    }
    cr_assert_null(clef__device_at(ctx, 2));
    clef_close(ctx);
}

Test(devices, wrong_choices_list_what_exists) {
    only_pocl("pthread basic");
    static const char *const wrong[] = {"7", "nonesuch", "gpu", "0,7", "0,,1", "99999999999999999999", "0,1,"};
    clef_device_info info;
    clef_device_get(0, &info);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_null(open_device(wrong[i]), "%s", wrong[i]);
        cr_assert_eq(clef_error_status(NULL), CLEF_INVALID, "%s: %s", wrong[i], clef_error(NULL));
        cr_assert_not_null(strstr(clef_error(NULL), info.name), "%s", clef_error(NULL));
        cr_assert_not_null(strstr(clef_error(NULL), "basic"), "%s", clef_error(NULL));
        cr_assert_null(strchr(clef_error(NULL), '\n'));
    }
}

/* ---- no device ---- */
Test(no_device, no_platform) {
    setenv("OCL_ICD_VENDORS", "/dev/null/none", 1);
    cr_assert_eq(clef_device_count(), 0);
    cr_assert_not_null(strstr(clef_error(NULL), "no OpenCL platform"));
    cr_assert_null(clef_open(NULL));
    cr_assert_eq(clef_error_status(NULL), CLEF_NO_DEVICE);
    cr_assert_null(clef_open(&(clef_options){.device = "0"}));
    cr_assert_eq(clef_error_status(NULL), CLEF_NO_DEVICE);
    clef_close(NULL);
    cr_assert_eq(clef_synchronize(NULL), CLEF_INVALID);
}

Test(no_device, unwritable_home) {
    unsetenv("POCL_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("CLEF_CACHE_DIR");
    setenv("HOME", "/proc/nonexistent", 1);
    /* pocl then offers a platform without devices; others go on, and so does Clef, without its cache */
    clef_context *ctx = clef_open(NULL);
    if (ctx) {
        cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
        clef_close(ctx);
        return;
    }
    cr_assert_eq(clef_error_status(NULL), CLEF_NO_DEVICE, "%s", clef_error(NULL));
    cr_assert_not_null(strstr(clef_error(NULL), "offers no device"), "%s", clef_error(NULL));
}

/* ---- profiles ---- */
static const char *profile_for(const char *type, uint32_t lanes, size_t group, uint64_t local_bytes, clef__profile *p) {
    clef_device_info info = {
        .type = type, .vector_width = lanes, .max_work_group = group, .local_bytes = local_bytes, .local_is_dedicated = true};
    cr_assert(clef__profile_choose(NULL, &info, p));
    return p->name;
}

Test(profiles, by_facts) {
    clef__profile p;
    cr_assert_str_eq(profile_for("cpu", 16, 4096, 1 << 20, &p), "cpu_avx512");
    cr_assert_eq(p.vector * p.tile_vectors, 32);
    cr_assert_str_eq(profile_for("cpu", 8, 4096, 1 << 20, &p), "cpu_avx2");
    cr_assert_str_eq(profile_for("cpu", 4, 4096, 1 << 20, &p), "cpu");
    cr_assert_str_eq(profile_for("cpu", 1, 1, 0, &p), "cpu");
    cr_assert_str_eq(profile_for("cpu", 0, 1024, 32768, &p), "cpu");
    cr_assert_str_eq(profile_for("gpu", 1, 1024, 49152, &p), "gpu");
    cr_assert_str_eq(profile_for("gpu", 1, 64, 32768, &p), "gpu");
    cr_assert_str_eq(profile_for("gpu", 1, 1, 32768, &p), "minimal");
    cr_assert_str_eq(profile_for("gpu", 1, 256, 16384, &p), "minimal");
    cr_assert_str_eq(profile_for("accelerator", 1, 256, 65536, &p), "minimal");
    cr_assert_str_eq(profile_for("other", 16, 256, 65536, &p), "minimal");
}

/* GPUs by how many work-items run in step, and by where local memory is. */
static const char *gpu_profile(uint32_t in_step, bool dedicated) {
    static clef__profile p;
    clef_device_info info = {
        .type = "gpu", .max_work_group = 256, .local_bytes = 32768, .local_is_dedicated = dedicated, .group_multiple = in_step};
    cr_assert(clef__profile_choose(NULL, &info, &p));
    cr_expect((p.block > 0) == dedicated, "tiles in memory that is no faster");
    return p.name;
}

Test(profiles, kinds_of_gpus) {
    cr_expect_str_eq(gpu_profile(64, true), "gpu_64");
    cr_expect_str_eq(gpu_profile(32, true), "gpu");
    cr_expect_str_eq(gpu_profile(0, true), "gpu", "a device that does not tell");
    cr_expect_str_eq(gpu_profile(8, true), "gpu_16");
    for (uint32_t in_step = 0; in_step <= 64; in_step += 16) cr_expect_str_eq(gpu_profile(in_step, false), "gpu_shared");
}

/* Whatever the facts, a profile never asks for more than the device has. */
Test(profiles, fit_the_device) {
    static const char *const types[] = {"cpu", "gpu", "accelerator", "other"};
    for (int t = 0; t < 4; t++)
        for (size_t group = 1; group <= 4096; group *= 2)
            for (uint32_t lanes = 0; lanes <= 32; lanes++) {
                clef__profile p;
                profile_for(types[t], lanes, group, 32768, &p);
                cr_assert_leq((size_t)p.local, group);
                cr_assert(p.vector == 4 || p.vector == 8 || p.vector == 16);
                cr_assert(p.local > 0 && p.items_per_unit > 0 && p.tile_m > 0 && p.tile_vectors > 0);
            }
}

Test(profiles, forced) {
    if (clef_device_count() == 0) cr_skip_test("%s", clef_error(NULL));
    clef_context *ctx = clef_open(&(clef_options){.profile = "minimal", .cache_dir = ""});
    cr_assert_not_null(ctx);
    cr_assert_str_eq(clef__device_profile(clef__device_at(ctx, 0))->name, "minimal");
    clef_close(ctx);
    setenv("CLEF_PROFILE", "cpu_avx2", 1);
    ctx = clef_open(&(clef_options){.cache_dir = ""});
    cr_assert_str_eq(clef__device_profile(clef__device_at(ctx, 0))->name, "cpu_avx2");
    clef_close(ctx);
    cr_assert_null(clef_open(&(clef_options){.profile = "nonesuch", .cache_dir = ""}));
    cr_assert_eq(clef_error_status(NULL), CLEF_INVALID);
    static const char *const known[] = {"cpu_avx512, ", "gpu, ", ", minimal"}; /* and whatever rows profile.def has besides */
    for (int i = 0; i < 3; i++) cr_assert_not_null(strstr(clef_error(NULL), known[i]), "%s", clef_error(NULL));
}

/* ---- small devices ---- */
static void works_with(const char *name, const char *value) {
    setenv(name, value, 1);
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    cr_assert(add_works(clef__device_at(ctx, 0), add_source), "%s", clef_error(ctx));
    clef_close(ctx);
}

Test(small_devices, work_group_64) { works_with("POCL_MAX_WORK_GROUP_SIZE", "64"); }

Test(small_devices, work_group_1) { works_with("POCL_MAX_WORK_GROUP_SIZE", "1"); }

Test(small_devices, memory_limit) { works_with("POCL_MEMORY_LIMIT", "1"); }

/* Where address space is short the tool says so in one line, and no driver ends it. */
#ifdef CLEF_TEST_TOOL
Test(devices, little_address_space, .timeout = 120) {
    static const int mib[] = {150, 300, 450, 600, 750};
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        char command[600];
        snprintf(command, sizeof command,
                 "ulimit -v %d && exec '%s' train --data digits --model mlp --limit 64 --epochs 1 --quiet 2>&1 >/dev/null",
                 mib[i] * 1024, CLEF_TEST_TOOL);
        answer a = answer_of(command);
        cr_expect(a.code == 1 || a.code == 77, "%d MiB: %d %s", mib[i], a.code, a.first);
        cr_expect(a.lines == 1 && strncmp(a.first, "clef train: open: ", 18) == 0, "%d MiB: %d lines, %s", mib[i], a.lines,
                  a.first);
    }
}
#endif
