/* print.c — a graph and its plan for people: as text, or as Graphviz. */
#include "plan/run/run.h"

#include <inttypes.h>

/* ---- text ---- */

/* Outputs of a node but the first stand below it without its inputs. */
static void print_work(const clef__graph_view *g, const clef__captured *captured, FILE *out) {
    const clef__node *node = captured->node;
    int k = (int)(captured->out - node->out);
    fprintf(out, "%s", captured->leaf ? "input" : node->op->name);
    if (!captured->leaf && k > 0) fprintf(out, " output %d", k);
    if (!clef__is_work(captured)) return;
    for (int j = 0; j < node->n_inputs; j++) fprintf(out, " %%%d", clef__captured_of(g, node->input[j]));
    if (node->after) fprintf(out, " after %%%d", clef__captured_of(g, node->after));
}

static void print_captured(const clef__graph_view *g, FILE *out) {
    fprintf(out, "graph: %d nodes\n", g->n);
    for (int i = 0; i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        fprintf(out, "  %%%d = ", i);
        print_work(g, captured, out);
        fprintf(out, " : %s %s", clef_dtype_name(captured->out->dtype), clef__shape_text(captured->out->shape));
        if (captured->out->device) fprintf(out, " on %d", captured->out->device);
        if (captured->same_as >= 0) fprintf(out, " = %%%d", captured->same_as);
        if (captured->group >= 0) fprintf(out, " group %d", captured->group);
        fprintf(out, "%s%s\n", captured->donatable ? " overwritable" : "", captured->output ? " output" : "");
    }
}

static const char *how(const clef__launch *launch) {
    switch (launch->kind) {
    case CLEF__LAUNCH_COPY: return "transfer";
    case CLEF__LAUNCH_FETCH: return "to host";
    case CLEF__LAUNCH_STORE: return "from host";
    case CLEF__LAUNCH_ROUTINE: return launch->routine->name;
    default: return launch->file ? launch->file : "generated";
    }
}

static void print_launch(const clef__plan *plan, int i, FILE *out) {
    const clef__launch *launch = &plan->launch[i];
    fprintf(out, "  %3d %-20s %s", i, launch->label, how(launch));
    fprintf(out, " [%zu,%zu,%zu]/[%zu,%zu,%zu]", launch->global[0], launch->global[1], launch->global[2], launch->local[0],
            launch->local[1], launch->local[2]);
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR) fprintf(out, " %sv%d", launch->arg[a].writes ? "→" : "", launch->arg[a].value);
    if (launch->covers > 1) fprintf(out, ", covers %d", launch->covers);
    if (launch->device) fprintf(out, " on %d", launch->device);
    fprintf(out, "%s\n", launch->tuned ? " tuned" : "");
}

static void print_values(const clef__plan *plan, FILE *out) {
    static const char *const home[] = {"input", "arena", "output"};
    for (int v = 0; v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        fprintf(out, "  v%-4d %-6s %10zu bytes, launches %d … %d", v, home[value->home], value->bytes, value->first, value->last);
        if (value->device) fprintf(out, ", on %d", value->device);
        if (value->home == CLEF__ARENA_VALUE) fprintf(out, ", at %zu", value->offset);
        if (value->in_place_of >= 0) fprintf(out, ", in place of v%d", value->in_place_of);
        if (value->donor >= 0) fprintf(out, ", takes over v%d", value->donor);
        if (value->seen) fprintf(out, ", seen by other devices");
        if (value->updated) fprintf(out, ", updated in place");
        fputc('\n', out);
    }
}

static void print_text(const clef__plan *plan, const clef__graph_view *g, FILE *out) {
    print_captured(g, out);
    fprintf(out, "plan %016" PRIx64 ": %d launches\n", plan->hash, plan->n_launches);
    for (int i = 0; i < plan->n_launches; i++) print_launch(plan, i, out);
    for (int d = 0; d < clef__context_devices(g->captured[0].node->ctx); d++) {
        fprintf(out, "memory: arena %zu bytes, at most %zu alive at once", plan->arena_bytes[d], plan->lower_bound[d]);
        if (d) fprintf(out, ", on %d", d);
        fputc('\n', out);
    }
    print_values(plan, out);
}

/* ---- Graphviz ---- */

/* What leads to captured node i; to an output but the first, the first one does. */
static void print_edges(const clef__graph_view *g, int i, FILE *out) {
    const clef__captured *captured = &g->captured[i];
    const clef__node *node = captured->node;
    if (!captured->leaf && captured->out != node->out)
        fprintf(out, "  n%d -> n%d [style=dashed, label=\"output %d\"];\n", clef__captured_of(g, node->out), i,
                (int)(captured->out - node->out));
    if (!clef__is_work(captured)) return;
    for (int j = 0; j < node->n_inputs; j++) fprintf(out, "  n%d -> n%d;\n", clef__captured_of(g, node->input[j]), i);
    if (node->after) fprintf(out, "  n%d -> n%d [style=dotted];\n", clef__captured_of(g, node->after), i);
}

static void print_graphviz(const clef__graph_view *g, FILE *out) {
    fprintf(out, "digraph clef {\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for (int i = 0; i < g->n; i++) {
        const clef__captured *captured = &g->captured[i];
        if (captured->same_as >= 0) continue;
        fprintf(out, "  n%d [label=\"%s\\n%s %s", i, captured->leaf ? "input" : captured->node->op->name,
                clef_dtype_name(captured->out->dtype), clef__shape_text(captured->out->shape));
        if (captured->group >= 0) fprintf(out, "\\ngroup %d", captured->group);
        fprintf(out, "\"%s];\n", captured->leaf ? ", style=rounded" : captured->output ? ", peripheries=2" : "");
        print_edges(g, i, out);
    }
    fprintf(out, "}\n");
}

static void print(const clef__plan *plan, const clef__graph_view *g, clef_plan_format format, FILE *stream) {
    if (format == CLEF_PLAN_GRAPHVIZ) print_graphviz(g, stream);
    else print_text(plan, g, stream);
}

clef_status clef_print_plan(clef_tensor *t, clef_plan_format format, FILE *stream) {
    if (!CLEF__GIVEN("print_plan", "t", t)) return CLEF_INVALID;
    clef__output *root = clef__output_of(t);
    clef_context *ctx = root->node->ctx;
    if (!stream) return clef__fail(ctx, CLEF_INVALID, "print_plan: the stream is NULL");
    if (format != CLEF_PLAN_TEXT && format != CLEF_PLAN_GRAPHVIZ)
        return clef__fail(ctx, CLEF_INVALID, "print_plan: there is no format %d; give CLEF_PLAN_TEXT or CLEF_PLAN_GRAPHVIZ",
                          (int)format);
    clef__graph_view g = {0};
    clef_status status = clef__collect(ctx, &root, 1, &g);
    if (status == CLEF_OK && g.n == 0) {
        fprintf(stream, "nothing to compute\n");
    } else if (status == CLEF_OK) {
        clef__plan *plan = clef__plan_build(ctx, &g);
        if (plan) print(plan, &g, format, stream);
        else status = clef_error_status(ctx);
        if (plan) clef__plan_free(plan);
    }
    clef__graph_view_free(&g);
    if (status == CLEF_OK && ferror(stream))
        status = clef__fail(ctx, CLEF_IO, "print_plan: the stream does not take what is written");
    return status;
}
