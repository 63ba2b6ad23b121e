/* meeting.c — all members of a group at one place: they compare what they are about to do, then do it. */
#include "group/meeting.h"
#include <stdio.h>
#include <string.h>

enum { SMALL = 16 << 10, LINE_BYTES = 64 }; /* bytes; of a line of the cache */

/* ---- who gets what ---- */
bool clef__reduces(const clef__meeting *what) {
    return what->kind == CLEF__MEET_ALL_REDUCE || what->kind == CLEF__MEET_REDUCE_SCATTER;
}

bool clef__is_small(const clef__session *s) { return (uint64_t)s->what->n * s->element <= SMALL; }

static bool shares(const clef__session *s) { return s->group->of->transport->begin_sharing && !clef__is_small(s); }

/* An all_reduce by messages of many numbers. */
static bool goes_in_pieces(const clef__session *s) {
    return s->what->kind == CLEF__MEET_ALL_REDUCE && !clef__is_small(s) && !shares(s);
}

/* Cuts at whole lines of the cache, as nearly equal as that allows. */
static int64_t cut(const clef__session *s, int64_t n, int at) {
    int64_t size = s->group->size, step = LINE_BYTES / (int64_t)s->element;
    int64_t near = n / size * at + n % size * at / size, start = (near + step - 1) / step * step;
    return at == size || start > n ? n : start;
}

clef__part clef__own_part(const clef__session *s, clef__part whole, int member) {
    int64_t begin = cut(s, whole.count, member);
    return (clef__part){whole.start + begin, cut(s, whole.count, member + 1) - begin};
}

clef__part clef__part_for(const clef__session *s, int to) {
    int64_t n = s->what->n, part = n / s->group->size;
    switch (s->what->kind) {
    case CLEF__MEET_REDUCE_SCATTER:
    case CLEF__MEET_ALL_TO_ALL: return (clef__part){to * part, part};
    case CLEF__MEET_ALL_REDUCE:
        if (!clef__is_small(s)) return clef__own_part(s, (clef__part){0, n}, to);
        return (clef__part){0, n};
    case CLEF__MEET_BARRIER: return (clef__part){0, 0};
    default: return (clef__part){0, n};
    }
}

int64_t clef__landing_of(const clef__session *s, int from) {
    switch (s->what->kind) {
    case CLEF__MEET_ALL_REDUCE: return clef__part_for(s, from).start;
    case CLEF__MEET_ALL_GATHER: return from * s->what->n;
    case CLEF__MEET_ALL_TO_ALL: return from * (s->what->n / s->group->size);
    default: return 0;
    }
}

void clef__put(void *to, const void *from, size_t bytes) {
    if (bytes && to != from) memcpy(to, from, bytes);
}

/* ---- parcels ---- */
void clef__send_to(clef__session *s, int member, const void *bytes, size_t n) {
    s->out[s->n_out++] = (clef_parcel){s->group->member[member], (void *)bytes, n};
}

void clef__receive_from(clef__session *s, int member, void *bytes, size_t n) {
    s->in[s->n_in++] = (clef_parcel){s->group->member[member], bytes, n};
}

clef_status clef__session_exchange(clef__session *s) {
    const clef_transport *t = s->group->of->transport;
    clef_status status = t->exchange(t, s->out, s->n_out, s->in, s->n_in, s->group->of->timeout, s->why);
    s->n_out = s->n_in = 0;
    return status;
}

size_t clef__bytes_ahead(const clef__session *s, int m) {
    const clef__header *h = &s->header[m];
    size_t bytes = (size_t)h->n * clef_dtype_size((clef_dtype)h->dtype);
    bool scatters = h->kind == CLEF__MEET_REDUCE_SCATTER || h->kind == CLEF__MEET_ALL_TO_ALL;
    bool waits = s->group->of->transport->begin_sharing || h->kind == CLEF__MEET_ALL_REDUCE;
    if (bytes > SMALL && waits) return 0; /* until headers are known to be alike */
    return scatters ? bytes / (size_t)s->group->size : bytes;
}

/* ---- the ways to meet ---- */
static clef_status differ(clef__session *s, int a, const clef__header *x, int b, const clef__header *y) {
    if (!clef__headers_differ(s->group, a, x, b, y, s->why->line)) return CLEF_OK;
    s->why->rank = -1;
    return CLEF_GROUP;
}

static clef_status send_to_one(clef__session *s) {
    const clef__meeting *w = s->what;
    clef__send_to(s, w->peer, &s->header[s->group->rank], sizeof *s->header);
    clef__send_to(s, w->peer, w->in, (size_t)w->n * s->element);
    return clef__session_exchange(s);
}

static clef_status receive_from_one(clef__session *s) {
    const clef__meeting *w = s->what;
    int me = s->group->rank;
    clef__header *own = &s->header[me], *theirs = &s->header[s->group->size];
    clef__letter *early = clef__take_letter(s, w->peer);
    if (early) memcpy(theirs, early->content, sizeof *theirs);
    else clef__receive_from(s, w->peer, theirs, sizeof *theirs);
    clef_status status = clef__session_exchange(s);
    if (status == CLEF_OK && !early) status = clef__put_letters_aside(s, w->peer, theirs);
    if (status == CLEF_OK) status = w->peer < me ? differ(s, w->peer, theirs, me, own) : differ(s, me, own, w->peer, theirs);
    size_t bytes = (size_t)w->n * s->element;
    if (status == CLEF_OK && early) clef__put(w->out, early->content + sizeof *theirs, bytes);
    clef__free(early);
    if (status != CLEF_OK || early) return status;
    clef__receive_from(s, w->peer, w->out, bytes);
    return clef__session_exchange(s);
}

/* Headers come first between each two members, with or without numbers behind them. */
static clef_status exchange_headers(clef__session *s, bool numbers) {
    const clef_group *g = s->group;
    for (int m = 0; m < g->size; m++) {
        if (m == g->rank) continue;
        clef__send_to(s, m, &s->header[g->rank], sizeof *s->header);
        clef__receive_from(s, m, &s->header[m], sizeof *s->header);
    }
    if (numbers) clef__messages_send(s);
    clef_status status = clef__session_exchange(s);
    for (int m = 0; m < g->size && status == CLEF_OK; m++)
        if (m != g->rank) status = clef__put_letters_aside(s, m, &s->header[m]);
    if (status == CLEF_OK && clef__only_subjects_differ(s)) status = clef__compare_subjects(s);
    for (int m = 1; m < g->size && status == CLEF_OK; m++) status = differ(s, 0, &s->header[0], m, &s->header[m]);
    for (int m = 0; s->weight && m < g->size; m++) s->weight[m] = s->header[m].weight;
    return status;
}

static bool lie_alike(const clef__session *s) {
    bool alike = true;
    for (int m = 1; m < s->group->size; m++) alike &= s->header[m].layout == s->header[0].layout;
    return alike;
}

/* The segments in one piece, where few numbers are summed, or memory is shared that does not lie alike. */
static clef_status sum_packed(clef__session *s, clef_status (*sum)(clef__session *s)) {
    const clef__meeting *given = s->what;
    clef_status status = clef__pack(s);
    if (status == CLEF_OK) status = sum(s);
    if (status == CLEF_OK) clef__unpack(s, given);
    return status;
}

/* Few numbers go with the headers, so that it takes one round. */
static clef_status meet_at_once(clef__session *s) {
    clef_status status = exchange_headers(s, true);
    return status == CLEF_OK ? clef__messages_receive(s) : status;
}

/* Many wait until these were compared. */
static clef_status meet_all(clef__session *s) {
    bool segments = s->what->segment != NULL, pieces = goes_in_pieces(s);
    if (!shares(s) && !pieces) return segments ? sum_packed(s, meet_at_once) : meet_at_once(s);
    clef_status status = exchange_headers(s, false);
    if (status != CLEF_OK) return status;
    bool alike = lie_alike(s);
    if (pieces) return clef__reduce_in_pieces(s, !alike);
    return segments && !alike ? sum_packed(s, clef__share) : clef__share(s);
}

static clef_status take_part(clef__session *s) {
    switch (s->what->kind) {
    case CLEF__MEET_SEND: return send_to_one(s);
    case CLEF__MEET_RECV: return receive_from_one(s);
    default: return meet_all(s);
    }
}

/* ---- a session ---- */
bool clef__session_room(clef__session *s, void *address, size_t bytes) {
    void *room = clef__alloc(bytes ? bytes : 1);
    memcpy(address, &room, sizeof room);
    if (room) return true;
    s->why->rank = -1;
    snprintf(s->why->line, sizeof s->why->line, "no host memory for %zu bytes", bytes);
    return false;
}

static bool session_open(clef__session *s) {
    size_t n = (size_t)s->group->size;
    bool ok = clef__session_room(s, &s->header, (n + 1) * sizeof *s->header) &&
              clef__session_room(s, &s->out, 2 * n * sizeof *s->out) && clef__session_room(s, &s->in, 2 * n * sizeof *s->in) &&
              clef__session_room(s, &s->memory, 2 * n * sizeof *s->memory) &&
              clef__session_room(s, &s->addend, n * sizeof *s->addend);
    if (ok && s->what->weighted) ok = clef__session_room(s, &s->weight, n * sizeof *s->weight);
    if (ok && clef__reduces(s->what) && s->group->size > 1) {
        clef__part own = clef__part_for(s, s->group->rank);
        ok = shares(s) || goes_in_pieces(s) || clef__session_room(s, &s->scratch, (n - 1) * (size_t)own.count * s->element);
    }
    if (ok) clef__header_make(&s->header[s->group->rank], s->group, s->what);
    return ok;
}

static void session_close(clef__session *s) {
    clef__free(s->header);
    clef__free(s->out);
    clef__free(s->in);
    clef__free(s->memory);
    clef__free(s->addend);
    clef__free(s->scratch);
    clef__free(s->weight);
    clef__free(s->piece);
}

/* The line for this rank, and for all others what ends them too. */
static void explain(const clef__session *s, clef_status status, char *line) {
    const clef_transport *t = s->group->of->transport;
    const char *own = s->group->name[s->group->rank], *cause = NULL;
    char doing[400], told[CLEF_TRANSPORT_LINE];
    clef__header header;
    clef__header_make(&header, s->group, s->what);
    clef__header_text(doing, sizeof doing, &header);
    for (int m = 0; m < s->group->size; m++)
        if (s->group->member[m] == s->why->rank) cause = s->group->name[m];
    if (cause) snprintf(line, CLEF_TRANSPORT_LINE, "%s %.200s while %s waited for %s", cause, s->why->line, own, doing);
    else snprintf(line, CLEF_TRANSPORT_LINE, "%s", s->why->line);
    if (status == CLEF_GROUP) snprintf(told, sizeof told, "%s", line);
    else snprintf(told, sizeof told, "%s: %s: %.400s", own, doing, s->why->line);
    t->fail(t, told);
}

/* For lines about ranks that wait for each other. */
static void describe_wait(const void *what, int rank, char *text, size_t size) {
    const clef__session *s = what;
    const clef__header *own = &s->header[s->group->rank];
    char doing[240];
    const char *other = "another";
    for (int m = 0; m < s->group->size; m++)
        if (s->group->member[m] == rank) other = s->group->name[m];
    clef__header_text(doing, sizeof doing, own);
    snprintf(text, size, "%s waits for %s in %s of ranks %s", s->group->name[s->group->rank], other, doing, own->members);
}

static void say(const clef__session *s, bool meets) {
    const clef_transport *t = s->group->of->transport;
    if (t->say) t->say(t, meets ? describe_wait : NULL, s);
}

/* For CLEF_TRACE. */
static void note(const clef__session *s, const clef__meeting *what, double begin) {
    char doing[400], args[600];
    clef__header header;
    if (!s->group->ctx || !clef__traces(s->group->ctx)) return; /* tests meet without contexts */
    clef__header_make(&header, s->group, what);
    clef__header_text(doing, sizeof doing, &header);
    const char *name = clef__meeting_name((int32_t)what->kind);
    snprintf(args, sizeof args, "{\"op\":\"%s\",\"number\":%lld,\"group\":\"%llx\",\"ranks\":%d,\"bytes\":%lld,\"what\":\"%s\"}",
             name, (long long)what->number, (unsigned long long)s->group->id, s->group->size,
             (long long)what->n * (long long)s->element, doing);
    clef__trace_collective(s->group->ctx, name, begin, clef__now(), args);
}

clef_status clef__meet(const clef_group *group, const clef__meeting *meeting, char *line) {
    clef_transport_failure why = {.rank = -1};
    clef__session s = {.group = group, .what = meeting, .element = clef_dtype_size(meeting->dtype), .why = &why};
    double begin = clef__now();
    bool opened = session_open(&s);
    if (opened) say(&s, true);
    clef_status status = opened ? take_part(&s) : CLEF_MEMORY;
    if (opened) say(&s, false);
    session_close(&s);
    note(&s, meeting, begin);
    clef__busy_note(group, meeting, begin, clef__now());
    if (status != CLEF_OK) explain(&s, status, line);
    return status;
}

clef_status clef__miss(const clef_group *group, const char *why, char *line) {
    const clef_transport *t = group->of->transport;
    char told[CLEF_TRANSPORT_LINE];
    snprintf(line, CLEF_TRANSPORT_LINE, "%s", why);
    snprintf(told, sizeof told, "%s: %.800s", group->name[group->rank], why);
    t->fail(t, told);
    return CLEF_DEVICE;
}
