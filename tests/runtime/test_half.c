/* The 16-bit floating formats: every number of them, and every border between two, against their definitions. */
#include "runtime/half.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct format {
    const char *name;
    uint16_t infinity;
    double after_last; /* where infinity would lie if it were the next number */
    double (*from)(uint16_t bits);
    uint16_t (*to)(double value);
} format;
static const format formats[] = {{"f16", 0x7c00, 65536, clef__from_f16, clef__to_f16},
                                 {"bf16", 0x7f80, 0x1p128, clef__from_bf16, clef__to_bf16}};

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The same number as a float, put together from its bits. */
static float f16_by_bits(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 0) return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    return float_of(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

static bool same(double a, double b) { return isnan(a) ? isnan(b) && !signbit(a) == !signbit(b) : memcmp(&a, &b, sizeof a) == 0; }

Test(half, every_number_is_what_its_bits_say) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        double f16 = clef__from_f16((uint16_t)h), bf16 = clef__from_bf16((uint16_t)h);
        cr_assert(same(f16, f16_by_bits((uint16_t)h)), "f16 %04x", h);
        cr_assert(same(bf16, float_of(h << 16)), "bf16 %04x", h);
    }
    double payload = clef__from_bf16(0xffc5), wanted = float_of(0xffc50000);
    cr_assert_eq(memcmp(&payload, &wanted, sizeof payload), 0);
}

Test(half, every_number_comes_back) {
    for (const format *f = formats; f < formats + 2; f++)
        for (uint32_t h = 0; h < 0x10000; h++) {
            bool nan = (h & 0x7fff) > f->infinity;
            uint16_t back = f->to(f->from((uint16_t)h));
            if (!nan) cr_assert_eq(back, h, "%s %04x", f->name, h);
            else cr_assert((back & 0x8000) == (h & 0x8000) && isnan(f->from(back)), "%s %04x", f->name, h);
        }
    cr_assert(clef__to_f16(NAN) == 0x7e00 && clef__to_f16(-NAN) == 0xfe00);
    cr_assert(clef__to_bf16(NAN) == 0x7fc0 && clef__to_bf16(-NAN) == 0xffc0);
}

/* Between two neighbours: what is nearer to one becomes it, the middle the even one.  A double
   tells apart what is next to the middle. */
Test(half, every_border_between_two_numbers) {
    for (const format *f = formats; f < formats + 2; f++)
        for (uint16_t h = 0; h < f->infinity; h++) {
            uint16_t next = (uint16_t)(h + 1), even = h % 2 ? next : h;
            double a = f->from(h), b = next == f->infinity ? f->after_last : f->from(next), middle = (a + b) / 2;
            cr_assert_eq(f->to(middle), even, "%s: the middle after %04x", f->name, h);
            cr_assert_eq(f->to(nextafter(middle, a)), h, "%s: below the middle after %04x", f->name, h);
            cr_assert_eq(f->to(nextafter(middle, b)), next, "%s: above the middle after %04x", f->name, h);
            cr_assert_eq(f->to(-middle), even | 0x8000, "%s: minus the middle after %04x", f->name, h);
        }
    cr_assert(clef__to_f16(1e300) == 0x7c00 && clef__to_f16(-INFINITY) == 0xfc00 && clef__to_f16(-5e-324) == 0x8000);
    cr_assert(clef__to_bf16(1e300) == 0x7f80 && clef__to_bf16(-INFINITY) == 0xff80 && clef__to_bf16(-5e-324) == 0x8000);
}

/* Of floats bf16 keeps the upper half, rounded in whole numbers. */
Test(half, floats_to_bf16) {
    for (uint64_t u = 0; u < 0x100000000; u += 4099) {
        uint32_t bits = (uint32_t)u;
        if (isnan(float_of(bits))) continue;
        cr_assert_eq(clef__to_bf16(float_of(bits)), (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16), "%08x", bits);
    }
}
