/* Small and odd devices (see support/persona.h): each must give a working context, or one clear line. */
#include "support/persona.h"
#include "runtime_support.h"

static const persona personas[] = {
    {"work-groups of 1", CL_DEVICE_TYPE_GPU, 1, 65536, 1 << 30, 1, false, false, NULL, NULL, "minimal"},
    {"work-groups of 64", CL_DEVICE_TYPE_GPU, 64, 65536, 1 << 30, 1, false, false, NULL, NULL, "gpu"},
    {"16 KB of local memory", CL_DEVICE_TYPE_GPU, 256, 16384, 1 << 30, 1, false, false, NULL, NULL, "minimal"},
    {"64 MB in one piece", CL_DEVICE_TYPE_CPU, 4096, 65536, 64 << 20, 8, false, false, NULL, NULL, "cpu_avx2"},
    {"no doubles", CL_DEVICE_TYPE_CPU, 4096, 65536, 1 << 30, 4, true, false, NULL, NULL, "cpu"},
    {"an accelerator", CL_DEVICE_TYPE_ACCELERATOR, 128, 65536, 1 << 30, 4, false, false, NULL, NULL, "minimal"},
    {"OpenCL 1.2", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, false, "OpenCL 1.2 x", "OpenCL C 1.2 ", "gpu"},
    {"OpenCL 1.1", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, false, "OpenCL 1.1 x", "OpenCL C 1.1 ", NULL},
    {"no compiler", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, true, NULL, NULL, NULL},
};
enum { PERSONAS = sizeof personas / sizeof personas[0] };

#define CHECK(what)                                                                                      \
    do {                                                                                                 \
        if (!(what)) return printf("%s: line %d: %s does not hold\n", played->name, __LINE__, #what), 1; \
    } while (0)

static int unusable(void) {
    CHECK(clef_open(NULL) == NULL);
    CHECK(clef_error_status(NULL) == CLEF_NO_DEVICE);
    CHECK(strstr(clef_error(NULL), played->no_compiler ? "no compiler" : "older than OpenCL 1.2"));
    CHECK(clef_open(&(clef_options){.device = "0"}) == NULL);
    CHECK(clef_error_status(NULL) == CLEF_INVALID);
    CHECK(strstr(clef_error(NULL), "cannot be used"));
    return 0;
}

/* In a process of its own, as the list of devices is made once. */
static int play(void) {
    const clef__found *list;
    if (clef__devices(&list) == 0) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (!played->profile) return unusable();
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .cache_dir = ""});
    CHECK(ctx);
    clef__device *device = clef__device_at(ctx, 0);
    const clef_device_info *info = clef__device_info(device);
    CHECK(strcmp(clef__device_profile(device)->name, played->profile) == 0);
    CHECK((size_t)clef__device_profile(device)->local <= played->group);
    CHECK(!played->no_f64 || !info->f64);
    CHECK(add_works(device, add_source));
    clef__buffer *largest = clef__buffer_new(device, (size_t)played->max_alloc / 16 + 1000);
    CHECK(largest && clef__buffer_size(largest) <= played->max_alloc);
    clef__buffer_release(largest);
    CHECK(clef_error_status(ctx) == CLEF_OK);
    CHECK(!clef__buffer_new(device, (size_t)played->max_alloc + 1));
    CHECK(clef_error_status(ctx) == CLEF_MEMORY);
    clef_close(ctx);
    return 0;
}

int main(void) {
    int failed = 0, skipped = 0;
    fflush(stdout);
    for (int i = 0; i < PERSONAS; i++) {
        pid_t child = fork();
        if (child == 0) {
            played = &personas[i];
            int result = play();
            fflush(stdout);
            _exit(result);
        }
        int state = 1;
        if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state)) failed++;
        else if (WEXITSTATUS(state) == 77) skipped++;
        else failed += WEXITSTATUS(state) != 0;
    }
    printf("%d devices played, %d failed\n", PERSONAS, failed);
    return failed ? 1 : skipped ? 77 : 0;
}
