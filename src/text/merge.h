/* merge.h — words into tokens; the memory that takes is used again from word to word. */
#ifndef CLEF_TEXT_MERGE_H
#define CLEF_TEXT_MERGE_H
#include "runtime/json.h"
#include "text/text_internal.h"

typedef struct clef__symbol {
    int32_t id, before, next; /* neighbours; -1: none */
} clef__symbol;
typedef struct clef__candidate {
    int32_t rank, at;
} clef__candidate;
typedef struct clef__merger {
    clef__symbol *symbol;
    clef__candidate *heap;
    size_t room, in_heap;
    int32_t n;
} clef__merger;
void clef__merger_free(clef__merger *merger);
/* The tokens of one word that is not empty. */
bool clef__merge_word(const clef_tokenizer *tokenizer, clef__merger *merger, const uint8_t *text, size_t begin, size_t end,
                      clef__ids *out, clef__why *why);
#endif
