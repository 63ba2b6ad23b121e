/* embedded.c — the device code that the build put into the library. */
#include "runtime/runtime.h"
#include <string.h>

struct clef__embedded_file {
    const char *name;
    const char *text;
};
extern const struct clef__embedded_file clef__embedded_files[];
extern const int clef__embedded_count;

const char *clef__embedded(const char *file) {
    for (int i = 0; i < clef__embedded_count; i++)
        if (strcmp(clef__embedded_files[i].name, file) == 0)
            return clef__embedded_files[i].text;
    return NULL;
}
