/* strong_wolfe.c — a line search for the strong Wolfe conditions: the loss falls enough, and its slope has become small enough.

   First steps grow until two lengths have such a point between them, then the bracket shrinks; both by the minimum of the cubic through two
   points with their slopes.  Nocedal and Wright, "Numerical optimization", 2006, algorithms 3.5 and 3.6; the rules for growing and for too
   little progress are those of Schmidt's minFunc, 2005, which PyTorch follows, too. */
#include "graph/graph.h"
#include "optim/line_search.h"
#include <math.h>
#include <stdbool.h>

static const double decrease = 1e-4, curvature = 0.9;

typedef struct search {
    clef__line *line;
    const clef__line_point *start;
    clef__line_point bracket[2], p; /* p: what was evaluated last */
    int low;                        /* which of them has the lower loss */
    int64_t round;
    bool done; /* the low one fulfils the conditions */
} search;

void clef__hold_point(clef__line_point *held, const clef__line_point *point) {
    clef_tensor *former = held->gradient;
    *held = *point;
    clef_keep(held->gradient);
    clef__release_now(former);
}

/* The minimum of the cubic through a and b with their slopes, within low and high; their middle where there is none. */
static double cubic_minimum(const clef__line_point *a, const clef__line_point *b, double low, double high) {
    if (a->t > b->t) {
        const clef__line_point *other = a;
        a = b, b = other;
    }
    double d1 = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t), square = d1 * d1 - a->slope * b->slope;
    double root = square >= 0 ? sqrt(square) : NAN;
    double t = b->t - (b->t - a->t) * ((b->slope + root - d1) / (b->slope - a->slope + 2 * root));
    return isfinite(t) ? fmin(fmax(t, low), high) : (low + high) / 2;
}

static bool falls_enough(const search *s, const clef__line_point *p) {
    return p->loss <= s->start->loss + decrease * p->t * s->start->slope;
}

static bool is_flat_enough(const search *s, const clef__line_point *p) { return fabs(p->slope) <= -curvature * s->start->slope; }

static clef_status evaluate(search *s, double t) {
    s->line->evaluations++;
    clef_status status = s->line->evaluate(s->line->user, t, &s->p);
    if (!isfinite(s->p.slope)) s->p.loss = INFINITY;
    return status;
}

static void set_bracket(search *s, const clef__line_point *a, const clef__line_point *b) {
    clef__hold_point(&s->bracket[0], a);
    clef__hold_point(&s->bracket[1], b);
    s->low = a->loss <= b->loss ? 0 : 1;
}

/* Longer and longer steps, until a minimum lies behind one, or it fits itself. */
static clef_status grow(search *s, double first, clef__line_point *previous, clef__line_point *now) {
    clef__hold_point(previous, s->start);
    clef_status status = evaluate(s, first);
    clef__hold_point(now, &s->p);
    for (; !status && s->round < s->line->most; s->round++) {
        bool higher = !falls_enough(s, now) || (s->round > 1 && now->loss >= previous->loss);
        s->done = !higher && is_flat_enough(s, now);
        if (higher || s->done || now->slope >= 0) break;
        double t = cubic_minimum(previous, now, now->t + 0.01 * (now->t - previous->t), now->t * 10);
        clef__hold_point(previous, now);
        status = evaluate(s, t);
        clef__hold_point(now, &s->p);
    }
    if (!status) set_bracket(s, s->done ? now : s->round < s->line->most ? previous : s->start, now);
    return status;
}

/* Where in the bracket to look next: away from its ends where two steps in a row came close to one. */
static double next_length(search *s, bool *close) {
    double a = s->bracket[0].t, b = s->bracket[1].t, low = fmin(a, b), high = fmax(a, b), margin = 0.1 * (high - low);
    double t = cubic_minimum(&s->bracket[0], &s->bracket[1], low, high);
    bool near_end = fmin(high - t, t - low) < margin, moves = near_end && (*close || t >= high || t <= low);
    *close = near_end && !moves;
    if (!moves) return t;
    return fabs(t - high) < fabs(t - low) ? high - margin : low + margin;
}

/* The new point takes the place of one end, so that a minimum stays between them. */
static void narrow(search *s, const clef__line_point *p) {
    clef__line_point *low = &s->bracket[s->low], *high = &s->bracket[1 - s->low];
    if (!falls_enough(s, p) || p->loss >= low->loss) {
        clef__hold_point(high, p);
        s->low = s->bracket[0].loss <= s->bracket[1].loss ? 0 : 1;
        return;
    }
    s->done = is_flat_enough(s, p);
    if (!s->done && p->slope * (high->t - low->t) >= 0) clef__hold_point(high, low);
    clef__hold_point(low, p);
}

static clef_status zoom(search *s) {
    bool close = false;
    clef_status status = CLEF_OK;
    while (!status && !s->done && s->round < s->line->most) {
        if (fabs(s->bracket[1].t - s->bracket[0].t) * s->line->longest < s->line->tolerance) break;
        status = evaluate(s, next_length(s, &close));
        s->round++;
        if (!status) narrow(s, &s->p);
    }
    return status;
}

clef_status clef__strong_wolfe(clef__line *line, const clef__line_point *start, double first, clef__line_point *best) {
    static const clef__line_point nothing;
    search s = {.line = line, .start = start};
    clef__line_point previous = {0}, now = {0};
    clef_status status = grow(&s, first, &previous, &now);
    if (!status) status = zoom(&s);
    clef__hold_point(best, status ? &nothing : &s.bracket[s.low]);
    clef__hold_point(&previous, &nothing);
    clef__hold_point(&now, &nothing);
    clef__hold_point(&s.p, &nothing);
    for (int i = 0; i < 2; i++) clef__hold_point(&s.bracket[i], &nothing);
    return status;
}
