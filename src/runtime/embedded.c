/* embedded.c — the device code that the build put into the library. */
#include "runtime/runtime.h"
#include <string.h>

struct clef__embedded_file {
    const char *name;
    const char *text;
};
extern const struct clef__embedded_file clef__embedded_files[];
extern const int clef__embedded_count;

const char *(*clef__embedded_hook)(const char *file, const char *text);

const char *clef__embedded(const char *file) {
    for (int i = 0; i < clef__embedded_count; i++) {
        const char *text = clef__embedded_files[i].text;
        if (strcmp(clef__embedded_files[i].name, file) == 0)
            return clef__embedded_hook ? clef__embedded_hook(file, text) : text;
    }
    return NULL;
}

const char *clef__embedded_at(int n) { return n < clef__embedded_count ? clef__embedded(clef__embedded_files[n].name) : NULL; }
