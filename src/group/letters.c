/* letters.c — messages between two ranks that came before anybody asked for them.

   What two ranks send each other comes in one order, sends among what all do together.  A send is not for the meeting that finds it there: it
   is put aside for the clef_recv that comes later.  One that nobody asks for until the rank has ended is an error, as in MPI. */
#include "group/meeting.h"
#include <stdio.h>
#include <string.h>

static clef_status put_aside(clef__session *s, int member, const clef__header *h) {
    clef__rank *rank = s->group->of;
    clef__letter *letter, **at = &rank->letter;
    size_t bytes = (size_t)h->n * clef_dtype_size((clef_dtype)h->dtype);
    if (!clef__session_room(s, &letter, sizeof *letter + sizeof *h + bytes)) return CLEF_MEMORY;
    *letter = (clef__letter){.from = s->group->member[member]};
    memcpy(letter->content, h, sizeof *h);
    while (*at) at = &(*at)->next;
    *at = letter;
    clef__receive_from(s, member, letter->content + sizeof *h, bytes);
    return clef__session_exchange(s);
}

clef_status clef__put_letters_aside(clef__session *s, int member, clef__header *header) {
    clef_status status = CLEF_OK;
    while (status == CLEF_OK && header->kind == CLEF__MEET_SEND &&
           (s->what->kind != CLEF__MEET_RECV || header->group != s->group->id)) {
        status = put_aside(s, member, header);
        if (status != CLEF_OK) return status;
        clef__receive_from(s, member, header, sizeof *header);
        status = clef__session_exchange(s);
    }
    return status;
}

clef__letter *clef__take_letter(const clef__session *s, int member) {
    clef__header h;
    for (clef__letter **at = &s->group->of->letter; *at; at = &(*at)->next) {
        clef__letter *letter = *at;
        memcpy(&h, letter->content, sizeof h);
        if (letter->from != s->group->member[member] || h.group != s->group->id) continue;
        *at = letter->next;
        return letter;
    }
    return NULL;
}

void clef__letter_line(char *line, const char *from, const char *to, const void *bytes, size_t n) {
    char text[400] = "a message";
    clef__header h;
    if (n >= sizeof h) {
        memcpy(&h, bytes, sizeof h);
        clef__header_text(text, sizeof text, &h);
    }
    snprintf(line, CLEF_TRANSPORT_LINE, "%s does %s, but %s never received it; each clef_send wants a clef_recv", from, text, to);
}

bool clef__letters_were_read(const clef_group *all, char *line) {
    const clef__letter *first = all->of->letter;
    if (first) clef__letter_line(line, all->name[first->from], all->name[all->rank], first->content, sizeof(clef__header));
    return !first;
}

void clef__letters_free(clef__rank *rank) {
    for (clef__letter *letter = rank->letter, *next; letter; letter = next) {
        next = letter->next;
        clef__free(letter);
    }
}
