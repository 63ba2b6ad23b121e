/* Writers killed with SIGKILL at random moments, and several writers and readers at once: no reader ever sees a
   broken entry. Usage: main_cache_kill [kills].  A plain program, so that it also runs under sanitizers. */
#include "runtime_support.h"
#include <signal.h>
#include <time.h>

enum { KEYS = 8, WRITERS = 4, LARGEST = 100000 };

static uint32_t state = 12345;
static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static void make_key(unsigned i, uint8_t key[32]) {
    memset(key, 0, 32);
    key[0] = (uint8_t)i;
}

/* Payloads say themselves whether they are whole: a length and a seed, then bytes that follow from it. */
static size_t make_payload(unsigned char *p, uint32_t seed, size_t n) {
    uint32_t x = seed;
    memcpy(p, &seed, 4);
    for (size_t i = 4; i < n; i++) p[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    return n;
}

static bool payload_whole(const unsigned char *p, size_t n) {
    uint32_t x;
    if (n < 4) return false;
    memcpy(&x, p, 4);
    for (size_t i = 4; i < n; i++)
        if (p[i] != (unsigned char)((x = x * 1664525u + 1013904223u) >> 24)) return false;
    return true;
}

static void write_for_ever(const char *dir, uint32_t seed) {
    static unsigned char payload[LARGEST];
    clef_context *ctx = clef__context_new(&(clef_options){.cache_dir = dir});
    for (state = seed;;) {
        uint8_t key[32];
        make_key(draw(KEYS), key);
        clef__cache_store(ctx, key, CLEF__ENTRY_BINARY, payload, make_payload(payload, draw(1 << 24), 4 + draw(LARGEST - 4)));
    }
}

static void complain(void *user, clef_log_level level, const char *line) {
    (void)level;
    fprintf(stderr, "%s\n", line);
    ++*(int *)user;
}

/* Loads every key; returns the entries found, and counts broken ones. */
static int read_all_keys(clef_context *ctx, int *broken) {
    int n = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        uint8_t key[32];
        clef__entry entry;
        make_key(i, key);
        unsigned char *bytes = clef__cache_load(ctx, key, &entry);
        if (!bytes) continue;
        n++;
        if (!payload_whole(entry.payload, entry.size)) ++*broken;
        clef__free(bytes);
    }
    return n;
}

int main(int argc, char **argv) {
    unsetenv("CLEF_CACHE");
    int kills = argc > 1 ? atoi(argv[1]) : 250, broken = 0, warnings = 0, seen = 0, done = 0;
    const char *dir = temporary_dir();
    clef_context *ctx = clef__context_new(&(clef_options){.cache_dir = dir, .log = complain, .log_user = &warnings});
    while (done < kills) {
        pid_t child[WRITERS];
        for (int w = 0; w < WRITERS; w++) {
            uint32_t seed = draw(1 << 24);
            if ((child[w] = fork()) == 0) write_for_ever(dir, seed);
        }
        struct timespec wait = {0, (long)draw(20000000)};
        nanosleep(&wait, NULL);
        for (int w = 0; w < WRITERS; w++, done++) {
            seen += read_all_keys(ctx, &broken); /* the others are still writing */
            kill(child[w], SIGKILL);
            waitpid(child[w], NULL, 0);
        }
        seen += read_all_keys(ctx, &broken);
    }
    clef_cache_info info;
    clef_cache_inspect(dir, true, &info);
    printf("%d kills, %d loads, %d broken, %d refused, %llu damaged at the end\n", done, seen, broken, warnings,
           (unsigned long long)info.damaged);
    clef_close(ctx);
    remove_dir(dir);
    return broken || warnings || info.damaged || seen < kills;
}
