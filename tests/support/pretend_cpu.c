/* Makes pocl take the machine for a lesser one: LD_PRELOAD this and set PRETEND_CPU to avx2 (8 float lanes) or sse (4).  It answers
   in LLVM's place which CPU this is, and takes features away from what LLVM found, so the code that pocl makes still runs here.  It
   knows LLVM up to version 18, which asked for features by reference; with another one, or another driver, it changes nothing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct cpu {
    const char *mode, *name;
    const char *lacks[12]; /* how the names of missing features begin */
} cpu;
static const cpu cpus[] = {
    {"avx2", "haswell", {"avx512", "avxvnni", "avxifma", "avxne", "amx", "gfni", "vaes", "vpclmulqdq"}},
    {"sse", "nehalem", {"avx", "amx", "gfni", "vaes", "vpclmulqdq", "fma", "f16c", "xop", "bmi", "lzcnt", "movbe"}},
};

static const cpu *pretended(void) {
    const char *mode = getenv("PRETEND_CPU");
    for (size_t i = 0; mode && i < sizeof cpus / sizeof cpus[0]; i++)
        if (strcmp(cpus[i].mode, mode) == 0) return &cpus[i];
    return NULL;
}

/* llvm::StringRef; llvm::StringMap<bool>: a hash table of pointers (NULL or the highest addresses: none there) to an entry, with
   its key behind it. */
typedef struct string_ref {
    const char *data;
    size_t length;
} string_ref;
typedef struct feature {
    size_t length;
    bool value;
} feature;
typedef struct string_map {
    feature **table;
    unsigned buckets, items, tombstones, item_size;
} string_map;

#define NAME "_ZN4llvm3sys14getHostCPUNameEv"
#define FEATURES "_ZN4llvm3sys18getHostCPUFeaturesERNS_9StringMapIbNS_15MallocAllocatorEEE"
string_ref host_cpu_name(void) __asm__(NAME);
bool host_cpu_features(string_map *) __asm__(FEATURES);

/* The function that the library of `caller` would have called.  RTLD_NEXT does not see it: drivers
   are loaded with what they need apart. */
static void *real(const char *symbol, const void *caller) {
    Dl_info from;
    void *library = dladdr(caller, &from) ? dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return library ? dlsym(library, symbol) : NULL;
}

EXPORT string_ref host_cpu_name(void) {
    const cpu *c = pretended();
    if (c) return (string_ref){c->name, strlen(c->name)};
    string_ref (*ask)(void) = (string_ref(*)(void))real(NAME, __builtin_return_address(0));
    return ask ? ask() : (string_ref){"", 0};
}

static bool lacks(const cpu *c, const char *name) {
    bool found = false;
    for (size_t i = 0; i < sizeof c->lacks / sizeof c->lacks[0] && c->lacks[i]; i++)
        found = found || strncmp(name, c->lacks[i], strlen(c->lacks[i])) == 0;
    return found;
}

EXPORT bool host_cpu_features(string_map *features) {
    bool (*ask)(string_map *) = (bool (*)(string_map *))real(FEATURES, __builtin_return_address(0));
    const cpu *c = pretended();
    bool known = ask && ask(features);
    for (unsigned i = 0; known && c && i < features->buckets; i++) {
        feature *f = features->table[i];
        if (f && (uintptr_t)f < UINTPTR_MAX - 4096 && lacks(c, (char *)f + features->item_size)) f->value = false;
    }
    return known;
}
