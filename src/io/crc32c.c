/* crc32c.c — CRC-32C (Castagnoli; RFC 3720, appendix B.4), eight bytes at a time by eight tables.

   It finds every change of up to 32 bits in a row, and any other with all but one chance in 2³².  It stops accidents, not
   attackers, whose files are stopped by the checks of what they say. */
#include "io_internal.h"
#include <pthread.h>

static uint32_t table[8][256]; /* [k][b]: byte b followed by k zero bytes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);
        table[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

static uint32_t word(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t clef__crc32c(uint32_t crc, const void *data, size_t n) {
    const uint8_t *p = data;
    pthread_once(&once, fill_tables);
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = crc ^ word(p), b = word(p + 4);
        crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^ table[4][a >> 24] ^ table[3][b & 255] ^
              table[2][b >> 8 & 255] ^ table[1][b >> 16 & 255] ^ table[0][b >> 24];
    }
    for (; n; n--) crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}
