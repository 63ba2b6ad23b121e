/* base.c — names and messages of statuses, dtypes, shapes and the version, made from the maps of clef/base.h. */
#include "clef/base.h"
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *clef_version(void) { return TEXT(CLEF_VERSION_MAJOR) "." TEXT(CLEF_VERSION_MINOR) "." TEXT(CLEF_VERSION_PATCH); }

const char *clef_status_name(clef_status status) {
    switch (status) {
#define X(name, message) \
    case CLEF_##name: return "CLEF_" #name;
        CLEF_STATUS_MAP(X)
#undef X
    }
    return "CLEF_UNKNOWN";
}

const char *clef_status_message(clef_status status) {
    switch (status) {
#define X(name, message) \
    case CLEF_##name: return message;
        CLEF_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

static const struct {
    const char *name;
    size_t bytes;
} dtypes[CLEF_DTYPE_COUNT] = {
#define X(name, token, bytes, what) [CLEF_##name] = {#token, bytes},
    CLEF_DTYPE_MAP(X)
#undef X
};

static bool known(clef_dtype dtype) { return (unsigned)dtype < (unsigned)CLEF_DTYPE_COUNT; }

size_t clef_dtype_size(clef_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *clef_dtype_name(clef_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "unknown"; }

/* Dimensions of 0 are left out of the product that must not overflow, so that any product of some dimensions (a stride, a
   count of what is reduced) fits too, whatever the order. */
int64_t clef_shape_numel(clef_shape shape) {
    if (shape.rank < 0 || shape.rank > CLEF_MAX_RANK) return -1;
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 0) return -1;
        if (shape.dim[i] == 0) empty = true;
        else if (__builtin_mul_overflow(n, shape.dim[i], &n)) return -1;
    }
    return empty ? 0 : n;
}

bool clef_shape_equal(clef_shape a, clef_shape b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank && i < CLEF_MAX_RANK; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

char *clef_shape_format(clef_shape shape, char *text, size_t size) {
    if (!text || size == 0) return text;
    size_t used = 0;
    int rank = shape.rank < 0 ? 0 : shape.rank > CLEF_MAX_RANK ? CLEF_MAX_RANK : shape.rank;
    text[0] = 0;
    for (int i = -1; i <= rank; i++) {
        char part[32];
        if (i < 0) snprintf(part, sizeof part, "[");
        else if (i == rank) snprintf(part, sizeof part, "]");
        else snprintf(part, sizeof part, "%s%lld", i ? "," : "", (long long)shape.dim[i]);
        int n = snprintf(text + used, size - used, "%s", part);
        used += (size_t)n;
        if (used >= size) break;
    }
    return text;
}
