/* entry.c — what every public function asks first: are these tensors there?  And the error lines,
   of tensors that are not and of ops. */
#include "graph/graph_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- lines of ops ---- */

const char *clef__shape_text(clef_shape shape) {
    static _Thread_local char text[4][160];
    static _Thread_local unsigned turn;
    return clef_shape_format(shape, text[turn++ & 3], sizeof text[0]);
}

static void fail_line(clef_context *ctx, const char *op, clef_status status, const char *fmt, va_list args) {
    char line[512];
    vsnprintf(line, sizeof line, fmt, args);
    clef__fail(ctx, status, "%s: %s", op, line);
}

bool clef__infer_fail(clef__call *call, clef_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_line(call->ctx, call->op->name, status, fmt, args);
    va_end(args);
    return false;
}

clef_tensor *clef__refuse(clef_context *ctx, const char *op, clef_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_line(ctx, op, status, fmt, args);
    va_end(args);
    return NULL;
}

/* ---- lines of handles ---- */

typedef struct name {
    char text[48];
} name;

/* Where the i-th of several names separated by spaces begins. */
static const char *nth(const char *names, int i) {
    while (i-- > 0 && strchr(names, ' ')) names = strchr(names, ' ') + 1;
    return names;
}

static name name_in(const char *names, int i) {
    name n;
    names = nth(names, i);
    snprintf(n.text, sizeof n.text, "%.*s", (int)strcspn(names, " ?"), names);
    return n;
}

static bool is_optional(const char *names, int i) {
    names = nth(names, i);
    return names[strcspn(names, " ?")] == '?';
}

static name name_of_element(const char *array, int i) {
    name n;
    snprintf(n.text, sizeof n.text, "%s[%d]", array, i);
    return n;
}

static void fail_ended(const char *op, const char *what, const clef__tensor *slot, bool present) {
    const clef__ended *e = &slot->ended;
    clef_context *ctx = slot->ctx;
    const clef__graph *graph = clef__room_state(ctx, CLEF__ROOM_GRAPH);
    uint64_t ago = graph->step - e->step;
    if (!present)
        clef__fail(ctx, CLEF_STATE, "%s: %s was freed steps ago; keep what is used after its step with clef_keep", op, what);
    else if (e->released)
        clef__fail(ctx, CLEF_STATE,
                   "%s: %s (%s %s) was released: a tensor goes with its last clef_release, a gradient when it is "
                   "cleared",
                   op, what, e->op, clef__shape_text(e->shape));
    else
        clef__fail(ctx, CLEF_STATE,
                   "%s: %s was a temporary (%s %s), which ended %" PRIu64 " step%s ago; keep what is used after its "
                   "step with clef_keep",
                   op, what, e->op, clef__shape_text(e->shape), ago, ago == 1 ? "" : "s");
}

/* t stands for no tensor.  ctx: where that is said unless t's own context is still open; NULL: to this thread. */
static void fail_handle(clef_context *ctx, const char *op, const char *what, const clef_tensor *t, bool optional) {
    bool present = false;
    const clef__tensor *slot = clef__slot_of_ended(t, &present);
    if (slot) fail_ended(op, what, slot, present);
    else if (clef__is_handle(t)) clef__fail(ctx, CLEF_INVALID, "%s: %s belongs to a context that was closed", op, what);
    else if (t == CLEF_NONE) clef__fail(ctx, CLEF_INVALID, "%s: %s must be a tensor, not CLEF_NONE", op, what);
    else if (t) clef__fail(ctx, CLEF_INVALID, "%s: %s is no tensor; was its variable never set?", op, what);
    else if (ctx && clef_error_status(ctx) == CLEF_OK)
        clef__fail(ctx, CLEF_INVALID, "%s: %s is NULL though nothing failed before%s", op, what,
                   optional ? "; CLEF_NONE stands for none" : "");
}

/* ---- the questions ---- */

/* The first that does not stand for a tensor and may not be CLEF_NONE either; n if there is none.  One that was given comes before
   those that are NULL, which may only follow from it.  names NULL: none is optional. */
static int first_missing(const char *names, clef_tensor *const *t, int n) {
    int missing = n;
    for (int i = 0; i < n; i++) {
        if (clef__get(t[i]) || (t[i] == CLEF_NONE && names && is_optional(names, i))) continue;
        if (t[i]) return i;
        if (missing == n) missing = i;
    }
    return missing;
}

static clef_context *context_of(clef_tensor *const *t, int n) {
    for (int i = 0; i < n; i++)
        if (clef__get(t[i])) return clef__get(t[i])->ctx;
    return NULL;
}

bool clef__given(clef_context *ctx, const char *op, const char *names, clef_tensor *const *t, int n) {
    int i = first_missing(names, t, n);
    if (i < n) fail_handle(ctx ? ctx : context_of(t, n), op, name_in(names, i).text, t[i], is_optional(names, i));
    return i == n;
}

bool clef__given_array(clef_context *ctx, const char *op, const char *array, clef_tensor *const *t, int n) {
    if (n < 1 || !t) {
        clef__fail(ctx, CLEF_INVALID, n < 1 ? "%s: %s has %d tensors, not one" : "%s: %s is NULL, not an array of %d tensors", op,
                   array, n);
        return false;
    }
    int i = first_missing(NULL, t, n);
    if (i < n) fail_handle(ctx ? ctx : context_of(t, n), op, name_of_element(array, i).text, t[i], false);
    return i == n;
}
