/* subjects.c — what collective operations are about: lists of names.  Their hashes travel with every meeting; where those differ, the names do
   too, so that the line can tell the first that does. */
#include "group/meeting.h"
#include "runtime/arithmetic.h"
#include <stdio.h>
#include <string.h>

/* The zero behind each name included. */
static uint64_t hash_names(const char *const *name, int n, size_t *bytes) {
    uint64_t hash = CLEF__HASH_START;
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        size_t length = strlen(name[i]) + 1;
        hash = clef__hash(hash, name[i], length);
        *bytes += length;
    }
    return hash ? hash : 1;
}

/* A training step is about the same again and again: it is found, and costs no memory. */
bool clef__group_about(clef_group *group, const char *const *name, int n) {
    size_t bytes, at = 0;
    uint64_t hash = hash_names(name, n, &bytes);
    group->subject = NULL;
    if (n == 0) return true;
    for (const clef__subject *s = group->subjects; s && !group->subject; s = s->next)
        if (s->hash == hash && s->bytes == bytes) group->subject = s;
    if (group->subject) return true;
    clef__subject *made = clef__alloc(sizeof *made + bytes);
    if (!made) return false;
    *made = (clef__subject){.next = group->subjects, .hash = hash, .bytes = bytes};
    for (int i = 0; i < n; at += strlen(name[i++]) + 1) memcpy(made->names + at, name[i], strlen(name[i]) + 1);
    group->subjects = made;
    group->subject = made;
    return true;
}

void clef__subjects_free(clef_group *group) {
    for (clef__subject *s = group->subjects, *next; s; s = next) {
        next = s->next;
        clef__free(s);
    }
}

/* ---- the first difference ---- */

/* A list of names, of which `at` is the next. */
typedef struct list {
    const char *at, *end;
} list;

static const char *next_name(list *l) {
    if (l->at >= l->end) return NULL;
    const char *name = l->at, *zero = memchr(name, 0, (size_t)(l->end - l->at));
    l->at = zero ? zero + 1 : l->end;
    return zero ? name : NULL;
}

static void quote(char *text, size_t size, const char *name) {
    if (name) snprintf(text, size, "\"%.80s\"", name);
    else snprintf(text, size, "none");
}

/* False where they are equal. */
static bool name_difference(const clef__session *s, int m, list a, list b) {
    char what[2][240], names[2][84];
    const char *x, *y;
    int place = 0;
    do {
        x = next_name(&a), y = next_name(&b);
        if (!x && !y) return false;
        place++;
    } while (x && y && !strcmp(x, y));
    clef__header_text(what[0], sizeof what[0], &s->header[0]);
    clef__header_text(what[1], sizeof what[1], &s->header[m]);
    quote(names[0], sizeof names[0], x);
    quote(names[1], sizeof names[1], y);
    s->why->rank = -1;
    snprintf(s->why->line, sizeof s->why->line, "%.120s does %s, %.120s does %s; the first difference is in tensor %d: %s and %s",
             s->group->name[0], what[0], s->group->name[m], what[1], place, names[0], names[1]);
    return true;
}

/* Numbers that went with the headers are in the way. */
static clef_status exchange_names(clef__session *s, unsigned char *room, list *names) {
    const clef__subject *own = s->what->subject;
    for (int m = 0; m < s->group->size; m++) {
        bool is_own = m == s->group->rank;
        size_t bytes = (size_t)s->header[m].names_bytes, ahead = is_own ? 0 : clef__bytes_ahead(s, m);
        unsigned char *at = room + ahead;
        names[m] = is_own ? (list){own->names, own->names + own->bytes} : (list){(char *)at, (char *)at + bytes};
        if (is_own) continue;
        clef__send_to(s, m, own->names, own->bytes);
        if (ahead) clef__receive_from(s, m, room, ahead);
        clef__receive_from(s, m, at, bytes);
        room = at + bytes;
    }
    return clef__session_exchange(s);
}

clef_status clef__compare_subjects(clef__session *s) {
    size_t bytes = 0;
    unsigned char *room = NULL;
    list *names = NULL;
    for (int m = 0; m < s->group->size; m++) bytes += (size_t)s->header[m].names_bytes + clef__bytes_ahead(s, m);
    bool ok = clef__session_room(s, &room, bytes) && clef__session_room(s, &names, (size_t)s->group->size * sizeof *names);
    clef_status status = ok ? exchange_names(s, room, names) : CLEF_MEMORY;
    for (int m = 1; m < s->group->size && status == CLEF_OK; m++)
        if (name_difference(s, m, names[0], names[m])) status = CLEF_GROUP;
    clef__free(room);
    clef__free(names);
    return status; /* CLEF_OK: not the names but their hashes differ, and so the headers */
}
