/* Threads that ask at once what drivers do with events, of the true clef-probe and of a script that hangs: each gets the one verdict.
   For sanitizers; the rest is in test_probe.c.
   ctest: labels=threads cost=5 */
#include "runtime/probe.h"
#include "runtime_support.h"
#include "support/io_files.h"
#include "support/plain.h"

enum { THREADS = 3 };
static const clef__found *device;
static char place[256];

typedef struct asker {
    pthread_t thread;
    clef_verdict events, user_events;
} asker;

static void *ask(void *user) {
    asker *a = user;
    char cache[300];
    snprintf(cache, sizeof cache, "%s/cache", place);
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .cache_dir = cache});
    if (!EXPECT(ctx)) return NULL;
    a->events = clef__probe_events(ctx, device, device, true);
    a->user_events = clef_device_user_events(ctx, 0, true);
    EXPECT(clef__probe_events(ctx, device, device, false) == a->events);
    EXPECT(clef_error_status(ctx) == CLEF_OK);
    clef_close(ctx);
    return NULL;
}

/* What all of them were told. */
static asker ask_together(void) {
    asker askers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) EXPECT(pthread_create(&askers[i].thread, NULL, ask, &askers[i]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(askers[i].thread, NULL);
    for (int i = 1; i < THREADS; i++)
        EXPECT(askers[i].events == askers[0].events && askers[i].user_events == askers[0].user_events);
    return askers[0];
}

static void pretend(const char *name, const char *script) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *file = fopen(path, "w");
    if (!EXPECT(file)) return;
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    chmod(path, 0700);
    setenv("CLEF_PROBE", path, 1);
}

int main(void) {
    setenv("CLEF_CACHE", "1", 1);
    snprintf(place, sizeof place, "%s", temporary_dir());
    const clef__found *list;
    if (clef__devices(&list) == 0) return without_context();
    device = list;
    asker told = ask_together();
    static const char *const words[] = {"unknown", "no", "yes"};
    printf("%s: events %s, user events %s\n", device->info.name, words[told.events], words[told.user_events]);
    if (strcmp(device->info.platform, "Portable Computing Language") == 0)
        EXPECT(told.events == CLEF_VERDICT_YES && told.user_events == CLEF_VERDICT_YES);
    pretend("hangs", "printf 'listed\\nready\\n' >&3; exec sleep 1000");
    told = ask_together();
    EXPECT(told.events == CLEF_VERDICT_NO && told.user_events == CLEF_VERDICT_NO);
    remove_dir(place);
    return io_failures != 0;
}
