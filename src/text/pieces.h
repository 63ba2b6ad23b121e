/* pieces.h — words in pieces, the longest first. */
#ifndef CLEF_TEXT_PIECES_H
#define CLEF_TEXT_PIECES_H
#include "text/text_internal.h"

/* The tokens of a text without added tokens, which is UTF-8. */
void clef__encode_pieces(const clef_tokenizer *tokenizer, const uint8_t *text, size_t at, size_t end, clef__ids *out);
/* The text of a token, of which `first` is the first: how many of its bytes are left out at its beginning, and whether a space comes
   before it. */
size_t clef__decode_piece(const clef_tokenizer *tokenizer, const clef__token *token, bool first, bool *space);
/* After reading: the number of the token for unknown words; false with why. */
bool clef__pieces_end(clef_tokenizer *tokenizer, clef__why *why);
#endif
