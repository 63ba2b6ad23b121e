/* The JSON reader against RFC 8259 and hostile bytes; in memory, no device is touched. */
#include "runtime/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
#define EXPECT(condition) \
    ((condition) ? (void)0 : (void)(failures++, fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition)))

/* A heap copy of the exact size, so that a sanitizer sees every step too far. */
static clef__json reader_of(const char *text, size_t size, bool lenient) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    memcpy(copy, text, size);
    clef__json json = clef__json_of(copy, size);
    json.lenient = lenient;
    return json;
}

/* Is it one value and nothing else?  *at, *expected: where not, and why. */
static bool is_value(const char *text, size_t size, bool lenient, size_t *at, const char **expected) {
    clef__json json = reader_of(text, size, lenient);
    bool skipped = clef__json_skip(&json), whole = clef__json_at_end(&json);
    *at = (size_t)(json.at - json.start);
    *expected = json.expected ? json.expected : "";
    EXPECT(skipped == !json.expected && json.at <= json.start + size);
    free(json.start);
    return skipped && whole;
}

/* ---- grammar ---- */
static void grammar(void) {
    static const char *const good[] = {"0",
                                       "-0",
                                       "10",
                                       "-1.5e-3",
                                       "1E+5",
                                       "0.25",
                                       "true",
                                       "false",
                                       "null",
                                       "\"\"",
                                       "[]",
                                       "{}",
                                       " [ 1 , [ ] , { } ] ",
                                       "{\"a\":1,\"a\":{\"b\":[null]}}",
                                       "\t\r\n1\n",
                                       "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                       "\"\xc3\xa4\xf0\x9f\x98\x80\x7f\"",
                                       "\"\\u00e4\\uD83D\\uDE00\\uffff\""};
    static const struct {
        const char *text;
        size_t at;
        const char *expected;
    } bad[] = {{"", 0, "number"},
               {" ", 1, "number"},
               {"{", 1, "a string"},
               {"[1,]", 3, "number"},
               {"[1 2]", 3, ", or ]"},
               {"[1}", 2, ", or ]"},
               {"{\"a\":1]", 6, ", or }"},
               {"{\"a\" 1}", 5, ":"},
               {"{\"a\":}", 5, "number"},
               {"{\"a\":1,}", 7, "a string"},
               {"{1:1}", 1, "a string"},
               {"{'a':1}", 1, "a string"},
               {"[,1]", 1, "number"},
               {"tru", 0, "number"},
               {"nul", 0, "number"},
               {"+1", 0, "number"},
               {"-", 1, "number"},
               {".5", 0, "number"},
               {"1.", 2, "number"},
               {"1.e5", 2, "number"},
               {"1e", 2, "number"},
               {"1e+", 3, "number"},
               {"[01]", 2, ", or ]"},
               {"[0x10]", 2, ", or ]"},
               {"inf", 0, "number"},
               {"NaN", 0, "number"},
               {"\"", 1, "end of a string"},
               {"\"a\\", 3, "after a backslash"},
               {"\"\\x\"", 3, "after a backslash"},
               {"\"\\u12g4\"", 6, "\\u escape"},
               {"\"\\u12", 3, "\\u escape"},
               {"\"\\ud800\\u1\"", 7, "\\u escape"},
               {"\"\n\"", 1, "control characters"}};
    size_t at;
    const char *expected;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_value(good[i], strlen(good[i]), false, &at, &expected)) failures++, fprintf(stderr, "%s: refused\n", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_value(bad[i].text, strlen(bad[i].text), false, &at, &expected) || at != bad[i].at ||
            !strstr(expected, bad[i].expected))
            failures++, fprintf(stderr, "%s: at %zu expected \"%s\"\n", bad[i].text, at, expected);
    EXPECT(!is_value("1 2", 3, false, &at, &expected) && !is_value("1\0", 2, false, &at, &expected) &&
           !is_value("[\0]", 3, false, &at, &expected));
    EXPECT(!is_value("{}}", 3, true, &at, &expected) && at == 2 && !*expected);
}

static void nesting(void) {
    static char deep[100000];
    size_t at;
    const char *expected;
    for (size_t n = 1; n <= 40; n++) {
        memset(deep, '[', n);
        memset(deep + n, ']', n);
        EXPECT(is_value(deep, 2 * n, false, &at, &expected) == (n <= 32));
        EXPECT(n <= 32 || (at == 32 && strstr(expected, "32 deep")));
    }
    memset(deep, '[', sizeof deep);
    EXPECT(!is_value(deep, sizeof deep, false, &at, &expected));
    for (size_t i = 0; i + 5 <= sizeof deep; i += 5) memcpy(deep + i, "{\"a\":", 5);
    EXPECT(!is_value(deep, sizeof deep, false, &at, &expected));
}

/* ---- strings: what they decode to ---- */
static void strings(void) {
    static const struct {
        const char *text, *strict, *lenient; /* NULL: refused */
    } cases[] = {
        {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "a\"\\/\b\f\n\r\tz", "a\"\\/\b\f\n\r\tz"},
        {"\"\\u0041\\u00e4\\u20AC\\ud83d\\ude00|\"", "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80|",
         "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80|"},
        {"\"\\u007f\\u0080\\u07ff\\u0800\\uffff\\ud800\\udc00\\udbff\\udfff\"",
         "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
         "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"\\u0000\"", NULL, "\xef\xbf\xbd"},
        {"\"\\ud800\"", NULL, "\xef\xbf\xbd"},
        {"\"\\ud800\\u0041\"", NULL,
         "\xef\xbf\xbd"
         "A"},
        {"\"\\ud800\\n\"", NULL, "\xef\xbf\xbd\n"},
        {"\"\\ud800\\ud83d\\ude00\"", NULL, "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\"\\udc00x\"", NULL, "\xef\xbf\xbdx"},
        {"\"\xff\xc0\xaf\"", NULL, "\xff\xc0\xaf"},
        {"\"\xed\xa0\x80\"", NULL, "\xed\xa0\x80"},
        {"\"\xe0\x9f\xbf\"", NULL, "\xe0\x9f\xbf"},
        {"\"\xf0\x8f\xbf\xbf\"", NULL, "\xf0\x8f\xbf\xbf"},
        {"\"\xf4\x90\x80\x80\"", NULL, "\xf4\x90\x80\x80"},
        {"\"\xe2\x82\"", NULL, "\xe2\x82"},
        {"\"\\ud800\\ug\"", NULL, NULL},
        {"\"\x1f\"", NULL, NULL},
        {"\"a", NULL, NULL},
        {"7", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int lenient = 0; lenient < 2; lenient++) {
            const char *want = lenient ? cases[i].lenient : cases[i].strict;
            clef__json json = reader_of(cases[i].text, strlen(cases[i].text), lenient);
            const char *string = clef__json_string(&json);
            bool right = want ? string && strcmp(string, want) == 0 && string == json.start + 1 && clef__json_at_end(&json)
                              : !string && json.expected && !clef__json_at_end(&json);
            if (!right)
                failures++,
                    fprintf(stderr, "%s, %s: %s\n", cases[i].text, lenient ? "lenient" : "strict", string ? string : "refused");
            free(json.start);
        }
}

/* ---- numbers ---- */
static void whole_numbers(void) {
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
        const char *expected;
    } cases[] = {{"0", 0, ""},
                 {" 7 ", 7, ""},
                 {"9223372036854775807", INT64_MAX, ""},
                 {"9223372036854775808", -1, "below 2^63"},
                 {"99999999999999999999999", -1, "below 2^63"},
                 {"00", -1, "leading zeros"},
                 {"01", -1, "leading zeros"},
                 {"-1", -1, "without sign"},
                 {"", -1, "whole number"},
                 {"1.0", -1, "fraction"},
                 {"1e0", -1, "exponent"},
                 {"1E0", -1, "exponent"},
                 {"null", -1, "whole number"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clef__json json = reader_of(cases[i].text, strlen(cases[i].text), false);
        int64_t value = -1;
        bool good = clef__json_whole(&json, &value);
        EXPECT(good == (cases[i].value >= 0) && value == cases[i].value &&
               strstr(json.expected ? json.expected : "", cases[i].expected));
        free(json.start);
    }
}

static bool reads_double(const char *text, double *value) {
    clef__json json = reader_of(text, strlen(text), false);
    bool good = clef__json_double(&json, value) && clef__json_at_end(&json);
    free(json.start);
    return good;
}

static void doubles(void) {
    static const double values[] = {0.1, 1.7976931348623157e308, 5e-324, 123456789.123456789, -2.5e-3, 0, 1e22, 9007199254740993.0};
    double value;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.17g", values[i]);
        EXPECT(reads_double(text, &value) && value == values[i]);
    }
    EXPECT(reads_double("1E400", &value) && isinf(value) && reads_double("-0", &value) && signbit(value));
    EXPECT(reads_double(" true ", &value) && value == 1 && reads_double("false", &value) && value == 0 &&
           reads_double("null", &value) && isnan(value));
    EXPECT(!reads_double("\"1\"", &value) && !reads_double("[1]", &value) && !reads_double("", &value) &&
           !reads_double("1x", &value));
    char text[66] = "0.";
    memset(text + 2, '3', 61);
    EXPECT(reads_double(text, &value) && fabs(value - 1. / 3) < 1e-16);
    text[63] = '3';
    EXPECT(!reads_double(text, &value));
}

/* ---- objects and arrays, value by value ---- */
static void members(void) {
    static const char text[] = " {\"empty\":{}, \"list\" : [1,2 , 3],\"none\":[],\"text\":\"t\"}";
    clef__json json = reader_of(text, strlen(text), false);
    char names[64] = "";
    int64_t sum = 0, value;
    EXPECT(clef__json_expect(&json, "{"));
    for (const char *name; (name = clef__json_member(&json));) {
        strcat(strcat(names, name), " ");
        if (clef__json_peek(&json) == '[') {
            clef__json_expect(&json, "[");
            while (clef__json_element(&json) && clef__json_whole(&json, &value)) sum += value;
        } else EXPECT(clef__json_skip(&json));
    }
    EXPECT(clef__json_at_end(&json) && sum == 6 && strcmp(names, "empty list none text ") == 0);
    free(json.start);
}

/* The first error stays, where it was, whatever is asked afterwards. */
static void errors_stick(void) {
    clef__json json = reader_of("[1,x,{\"a\":2}]", 13, false);
    int64_t value;
    double number;
    EXPECT(clef__json_expect(&json, "[") && clef__json_element(&json) && clef__json_whole(&json, &value) &&
           clef__json_element(&json));
    EXPECT(!clef__json_whole(&json, &value) && json.at == json.start + 3);
    const char *first = json.expected;
    EXPECT(!clef__json_element(&json) && !clef__json_expect(&json, "{") && !clef__json_member(&json) && !clef__json_string(&json));
    EXPECT(!clef__json_double(&json, &number) && !clef__json_skip(&json) && !clef__json_at_end(&json) &&
           clef__json_peek(&json) == 0);
    EXPECT(json.expected == first && json.at == json.start + 3);
    free(json.start);
}

/* ---- hostile bytes: every cut and every changed byte of a rich text ---- */
static void damage(void) {
    static const char rich[] =
        "{\"k\\u00e9\\ud83d\\ude00\":[1,-2.5e+3,{\"\xc3\xa4\":null}],\"t\":\"\\n\",\"b\":[true,false,\"\"]} ";
    char text[sizeof rich];
    size_t at, n = sizeof rich - 1;
    const char *expected;
    int refused = 0;
    memcpy(text, rich, sizeof rich);
    EXPECT(is_value(text, n, false, &at, &expected));
    for (size_t cut = 0; cut + 1 < n; cut++)
        EXPECT(!is_value(text, cut, false, &at, &expected) && !is_value(text, cut, true, &at, &expected));
    for (size_t i = 0; i < n; i++)
        for (int value = 0; value < 256; value++) {
            text[i] = (char)value;
            bool strict = is_value(text, n, false, &at, &expected), lenient = is_value(text, n, true, &at, &expected);
            EXPECT(lenient || !strict);
            refused += !strict;
            text[i] = rich[i];
        }
    EXPECT(refused > 10000);
}

/* ---- writing: what is written is read as it was, and only what must be is escaped ---- */
static void written_strings(void) {
    char text[256], line[2048] = "", *read;
    for (int c = 1; c < 256; c++) text[c - 1] = (char)c;
    text[255] = 0;
    FILE *file = tmpfile();
    if (!file) abort();
    clef__json_put_string(file, text);
    rewind(file);
    size_t n = fread(line, 1, sizeof line, file);
    fclose(file);
    EXPECT(n == 2 + 31 * 6 + 2 * 2 + (255 - 31 - 2) && memcmp(line, "\"\\u0001", 7) == 0 && strstr(line, "\\u001f !\\\"#"));
    clef__json json = clef__json_of(line, n);
    json.lenient = true;
    read = (char *)clef__json_string(&json);
    EXPECT(read && strcmp(read, text) == 0 && clef__json_at_end(&json));
}

int main(void) {
    grammar();
    nesting();
    strings();
    whole_numbers();
    doubles();
    members();
    errors_stick();
    damage();
    written_strings();
    printf("json: %d failures\n", failures);
    return failures != 0;
}
