/* modes.h — the ways to run one program that must give the same bits: fused, every op alone, eagerly, in exact buffers, as
   chains where a plan runs again. */
#ifndef CLEF_TESTS_MODES_H
#define CLEF_TESTS_MODES_H
#include "device.h"

typedef enum mode { FUSED, ALONE, EAGER, EXACT, CHAINED, MODES } mode;
static const char *const mode_names[] = {"fused", "with CLEF_FUSE=0", "eager", "in exact buffers", "chained"};

/* A context of that mode, which sets CLEF_FUSE for the whole process; device: as in clef_options, NULL for the best. */
static inline clef_context *open_mode(mode m, const char *device) {
    setenv("CLEF_FUSE", m == ALONE ? "0" : "1", 1);
    return open_or_skip(
        &(clef_options){.device = device, .eager = m == EAGER, .debug_memory = m == EXACT, .chain_after = m == CHAINED ? 1 : -1});
}
#endif
