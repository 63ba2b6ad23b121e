/* vocabulary.c — bytes as characters in vocabulary files (GPT-2): printable ones of Latin-1 are themselves, the others U+0100 onwards in
   their order, so that no token has white space or a control character. */
#include "text/text_internal.h"

static bool is_printable(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD); }

uint32_t clef__byte_code(uint8_t byte) {
    uint32_t others = 0;
    if (is_printable(byte)) return byte;
    for (int b = 0; b < byte; b++) others += !is_printable(b);
    return 0x100 + others;
}

int clef__code_byte(uint32_t code) {
    if (code < 0x100) return is_printable((int)code) ? (int)code : -1;
    for (int b = 0; b < 256 && code < 0x100 + 68; b++)
        if (clef__byte_code((uint8_t)b) == code) return b;
    return -1;
}
