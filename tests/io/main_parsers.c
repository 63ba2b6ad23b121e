/* The parsers of safetensors and .npy against hand-made and hostile files, in memory: no device is touched. */
#include "io/io_internal.h"
#include "support/io_files.h"
#include <math.h>

/* ---- safetensors ---- */
typedef struct verdict {
    clef_status status;
    char text[480];
} verdict;

/* Parses a heap copy of the exact size, so that a sanitizer sees every step too far; reads all tensors on success. */
static verdict parse_st(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    clef__reader reader = clef__reader_memory(copy, size);
    clef__st_index index;
    clef__report report = {0};
    if (clef__st_parse(&reader, &index, &report) == CLEF_OK) {
        for (int i = 0; i < index.n; i++) {
            size_t n = (size_t)(index.tensor[i].end - index.tensor[i].begin);
            void *out = malloc(n ? n : 1);
            clef__st_read(&reader, &index, &index.tensor[i], out, &report);
            free(out);
            EXPECT(clef__st_find(&index, index.tensor[i].name) == &index.tensor[i]);
        }
    }
    EXPECT(report.status == CLEF_OK || index.header == NULL);
    clef__st_free(&index);
    free(copy);
    verdict v = {.status = report.status};
    snprintf(v.text, sizeof v.text, "%s", report.text);
    return v;
}

static void expect_st(const char *header, size_t data_size, clef_status status, const char *said) {
    static const uint8_t zeros[4096];
    io_bytes file = io_safetensors(header, zeros, data_size);
    verdict v = parse_st(file.data, file.size);
    if (v.status != status || (said && !strstr(v.text, said))) {
        fprintf(stderr, "header %.100s: status %s, text \"%s\"; wanted %s, \"%s\"\n", header, clef_status_name(v.status), v.text,
                clef_status_name(status), said ? said : "");
        io_failures++;
    }
    EXPECT(!strchr(v.text, '\n'));
    free(file.data);
}

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void safetensors_good(void) {
    expect_st("{}", 0, CLEF_OK, NULL);
    expect_st("{ }   ", 0, CLEF_OK, NULL);
    expect_st("{" T("a", "F32", "[2,3]", 0, 24) "}", 24, CLEF_OK, NULL);
    expect_st("{ \"__metadata__\" : { } , " T("a", "U8", "[]", 0, 1) "}  ", 1, CLEF_OK, NULL);
    expect_st("{" T("a", "F64", "[1]", 4, 12) "," T("b", "I32", "[1]", 0, 4) "}", 12, CLEF_OK, NULL);
    expect_st("{" T("e", "F32", "[0,4]", 0, 0) "," T("f", "BF16", "[0]", 2, 2) "," T("a", "F16", "[1]", 0, 2) "}", 2, CLEF_OK,
              NULL);
    expect_st("{" T("", "BOOL", "[1,1,1,1,1,1,1,1]", 0, 1) "}", 1, CLEF_OK, NULL);
    expect_st("{\"a\":{\"data_offsets\":[0,8],\"shape\":[1],\"dtype\":\"I64\"}}", 8, CLEF_OK, NULL);
    expect_st("{\"\\ud83d\\ude00\\u00e9\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, CLEF_OK, NULL);
}

static void safetensors_hostile(void) {
    static const struct {
        const char *header;
        size_t data;
        clef_status status;
        const char *said;
    } cases[] = {
        {" {}", 0, CLEF_FORMAT, "does not start with '{'"},
        {"[]", 0, CLEF_FORMAT, "does not start with '{'"},
        {"{", 0, CLEF_FORMAT, "header"},
        {"{}x", 0, CLEF_FORMAT, "nothing but white space"},
        {"{},", 0, CLEF_FORMAT, "nothing but white space"},
        {"{}", 1, CLEF_FORMAT, "1 bytes of data belong to no tensor"},
        {"{" T("a", "F32", "[1]", 0, 4) ",}", 4, CLEF_FORMAT, "expected a string"},
        {"{" T("a", "F32", "[1]", 0, 4), 4, CLEF_FORMAT, "expected , or }"},
        {"{" T("a", "F32", "[1]", 0, 4) T("b", "F32", "[1]", 0, 4) "}", 4, CLEF_FORMAT, "expected , or }"},
        /* places */
        {"{" T("a", "F32", "[1]", 0, 4) "}", 3, CLEF_FORMAT, "outside the file's data"},
        {"{" T("a", "F32", "[1]", 4, 8) "}", 8, CLEF_FORMAT, "after a hole"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 8, CLEF_FORMAT, "4 bytes of data belong to no tensor"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 8, CLEF_FORMAT, "outside"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, CLEF_FORMAT, "overlaps"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "}", 8, CLEF_FORMAT, "overlaps"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 12, 16) "}", 16, CLEF_FORMAT, "after a hole"},
        {"{" T("a", "F32", "[2]", 0, 4) "}", 4, CLEF_FORMAT, "another number of bytes"},
        {"{" T("a", "F32", "[0]", 0, 4) "}", 4, CLEF_FORMAT, "another number of bytes"},
        {"{" T("a", "U8", "[1]", 0, 9223372036854775807) "}", 1, CLEF_FORMAT, "outside"},
        {"{" T("a", "U8", "[1]", 0, 9223372036854775808) "}", 1, CLEF_FORMAT, "below 2^63"},
        {"{" T("a", "U8", "[1]", 18446744073709551616, 1) "}", 1, CLEF_FORMAT, "below 2^63"},
        /* sizes that overflow */
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, CLEF_FORMAT, "another number of bytes"},
        {"{" T("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, CLEF_FORMAT, "another number of bytes"},
        {"{" T("a", "F64", "[9223372036854775807]", 0, 8) "}", 8, CLEF_FORMAT, "another number of bytes"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, CLEF_UNSUPPORTED, "more than 8"},
        /* numbers */
        {"{" T("a", "U8", "[-1]", 0, 1) "}", 1, CLEF_FORMAT, "whole number"},
        {"{" T("a", "U8", "[01]", 0, 1) "}", 1, CLEF_FORMAT, "whole number"},
        {"{" T("a", "U8", "[1.0]", 0, 1) "}", 1, CLEF_FORMAT, "fraction"},
        {"{" T("a", "U8", "[1e0]", 0, 1) "}", 1, CLEF_FORMAT, "fraction"},
        {"{" T("a", "U8", "[null]", 0, 1) "}", 1, CLEF_FORMAT, "whole number"},
        {"{" T("a", "U8", "[[1]]", 0, 1) "}", 1, CLEF_FORMAT, "whole number"},
        {"{" T("a", "U8", "[1,]", 0, 1) "}", 1, CLEF_FORMAT, "whole number"},
        {"{" T("a", "U8", "1", 0, 1) "}", 1, CLEF_FORMAT, "expected ["},
        /* members */
        {"{" T("a", "I16", "[1]", 0, 2) "}", 2, CLEF_UNSUPPORTED, "dtype \"I16\""},
        {"{" T("a", "f32", "[1]", 0, 4) "}", 4, CLEF_UNSUPPORTED, "dtype \"f32\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, CLEF_FORMAT, "lacks"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, CLEF_FORMAT, "lacks"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, CLEF_FORMAT, "lacks"},
        {"{\"a\":{}}", 0, CLEF_FORMAT, "expected a string"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, CLEF_FORMAT, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1, CLEF_FORMAT, "dtype, shape or data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}", 1, CLEF_FORMAT, "expected ,"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}", 1, CLEF_FORMAT, "expected ]"},
        {"{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 1, CLEF_FORMAT, "expected a string"},
        {"{\"a\":[]}", 0, CLEF_FORMAT, "expected {"},
        {"{\"a\":null}", 0, CLEF_FORMAT, "expected {"},
        /* doubles */
        {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, CLEF_FORMAT, "\"a\" is there twice"},
        {"{" T("a", "U8", "[1]", 0, 1) "," T("\\u0061", "U8", "[1]", 1, 2) "}", 2, CLEF_FORMAT, "is there twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, CLEF_FORMAT, "only once"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, CLEF_FORMAT, "metadata \"k\" is there twice"},
        {"{\"__metadata__\":{\"k\":1}}", 0, CLEF_FORMAT, "expected a string"},
        {"{\"__metadata__\":{\"k\":{}}}", 0, CLEF_FORMAT, "expected a string"},
        {"{\"__metadata__\":[]}", 0, CLEF_FORMAT, "expected {"},
        {"{\"__metadata__\":{\"k\":\"v\"", 0, CLEF_FORMAT, "expected , or }"},
        /* strings */
        {"{\"a", 0, CLEF_FORMAT, "end of a string"},
        {"{\"a\\", 0, CLEF_FORMAT, "after a backslash"},
        {"{\"\\x41\":1}", 0, CLEF_FORMAT, "after a backslash"},
        {"{\"\\u00\":1}", 0, CLEF_FORMAT, "\\u escape"},
        {"{\"\\u0000\":1}", 0, CLEF_FORMAT, "other than U+0000"},
        {"{\"\\ud800\":1}", 0, CLEF_FORMAT, "\\u escape"},
        {"{\"\\ud800\\u0041\":1}", 0, CLEF_FORMAT, "\\u escape"},
        {"{\"\\udc00\":1}", 0, CLEF_FORMAT, "\\u escape"},
        {"{\"\n\":1}", 0, CLEF_FORMAT, "control characters"},
        {"{\"\xff\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xc0\x80\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xe0\x80\x80\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xf0\x80\x80\x80\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xe2\x82\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xed\xa0\x80\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{\"\xf4\x90\x80\x80\":1}", 0, CLEF_FORMAT, "valid UTF-8"},
        {"{'a':1}", 0, CLEF_FORMAT, "expected a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_st(cases[i].header, cases[i].data, cases[i].status, cases[i].said);
}

/* Headers nested without end, or lying about their length, end at once. */
static void safetensors_lengths(void) {
    static const uint64_t lengths[] = {
        0, 1, 3, 100, 100000000, 100000001, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 7};
    uint8_t file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int b = 0; b < 8; b++) file[b] = (uint8_t)(lengths[i] >> (8 * b));
        verdict v = parse_st(file, sizeof file); /* before it asks for memory of that size */
        EXPECT(v.status == CLEF_FORMAT && strstr(v.text, "says its header has"));
    }
    for (size_t n = 0; n < 8; n++) EXPECT(strstr(parse_st(file, n).text, "no safetensors file") != NULL);
    size_t deep = 1000000;
    char *header = malloc(deep + 1);
    memset(header, '[', deep);
    header[deep] = 0;
    memcpy(header, "{\"a\":{\"shape\":", 14);
    expect_st(header, 0, CLEF_FORMAT, "whole number");
    memset(header + 5, '{', deep - 5);
    expect_st(header, 0, CLEF_FORMAT, "expected a string");
    free(header);
}

/* A small but rich file; every cut and every changed byte gives a verdict, and every cut gives an error. */
static const char rich[] = "{\"__metadata__\":{\"k\\u00e9\":\"v\\\"\\n\"}," T("w", "F32", "[2,2]", 0, 16) "," T(
    "b", "F16", "[2]", 16, 20) "," T("t", "BOOL", "[4]", 20, 24) "}  ";

static void safetensors_damage(void) {
    uint8_t data[24] = {1, 2, 3};
    io_bytes file = io_safetensors(rich, data, sizeof data);
    EXPECT(parse_st(file.data, file.size).status == CLEF_OK);
    for (size_t n = 0; n < file.size; n++) EXPECT(parse_st(file.data, n).status == CLEF_FORMAT);
    int header_changes = 0;
    for (size_t at = 0; at < file.size; at++)
        for (int value = 0; value < 256; value++) {
            uint8_t old = file.data[at];
            file.data[at] = (uint8_t)value;
            header_changes += parse_st(file.data, file.size).status != CLEF_OK;
            file.data[at] = old;
        }
    EXPECT(header_changes > 20000);
    free(file.data);
}

static void safetensors_values(void) {
    uint8_t data[24];
    for (int i = 0; i < 24; i++) data[i] = (uint8_t)(20 - i);
    io_bytes file = io_safetensors(rich, data, sizeof data);
    clef__reader reader = clef__reader_memory(file.data, file.size);
    clef__st_index index;
    clef__report report = {0};
    EXPECT(clef__st_parse(&reader, &index, &report) == CLEF_OK);
    EXPECT(index.n == 3 && strcmp(index.tensor[0].name, "w") == 0 && strcmp(index.tensor[2].name, "t") == 0);
    EXPECT(index.tensor[0].shape.rank == 2 && index.tensor[0].shape.dim[1] == 2 && index.tensor[1].dtype == CLEF_F16);
    EXPECT(strcmp(clef__st_metadata(&index, "k\xc3\xa9"), "v\"\n") == 0);
    EXPECT(!clef__st_metadata(&index, "K") && !clef__st_find(&index, "x") && !clef__st_find(&index, ""));
    uint8_t out[16];
    EXPECT(clef__st_read(&reader, &index, &index.tensor[0], out, &report) == CLEF_OK && memcmp(out, data, 16) == 0);
    EXPECT(clef__st_read(&reader, &index, &index.tensor[2], out, &report) == CLEF_OK);
    EXPECT(out[0] == 0 && out[1] == 1 && out[3] == 1); /* truth is 0 or 1, whatever the file says */
    clef__st_free(&index);
    free(file.data);
}

/* ---- .npy ---- */
static verdict parse_npy(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    clef__reader reader = clef__reader_memory(copy, size);
    clef__npy npy;
    clef__report report = {0};
    if (clef__npy_parse(&reader, &npy, &report) == CLEF_OK) {
        void *out = malloc((size_t)npy.data_bytes + 1);
        clef__npy_data(&reader, &npy, out, &report);
        free(out);
    }
    free(copy);
    verdict v = {.status = report.status};
    snprintf(v.text, sizeof v.text, "%s", report.text);
    return v;
}

static void npy_cases(void) {
#define H(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }  \n"
    static const struct {
        int version;
        const char *header;
        size_t data;
        clef_status status;
        const char *said;
    } cases[] = {
        {1, H("'<f4'", "False", "(2, 3)"), 24, CLEF_OK, ""},
        {2, H("'<f4'", "False", "(2, 3)"), 24, CLEF_OK, ""},
        {3, H("'>f8'", "True", "(2, 3)"), 48, CLEF_OK, ""},
        {1, H("'|u1'", "False", "()"), 1, CLEF_OK, ""},
        {1, H("'|b1'", "False", "(3,)"), 3, CLEF_OK, ""},
        {1, H("'=i4'", "False", "(3L,)"), 12, CLEF_OK, ""},
        {1, H("'<i8'", "False", "(0, 5)"), 0, CLEF_OK, ""},
        {1, "{\"shape\":(1,),\"fortran_order\":True,\"descr\":\"<f2\"}", 2, CLEF_OK, ""},
        {1, H("'<f4'", "False", "(2, 3,)"), 24, CLEF_OK, ""},
        {4, H("'<f4'", "False", "(2, 3)"), 24, CLEF_UNSUPPORTED, "version 4.0"},
        {0, H("'<f4'", "False", "(2, 3)"), 24, CLEF_UNSUPPORTED, "version 0.0"},
        {1, H("'<f4'", "False", "(2, 3)"), 23, CLEF_FORMAT, "23 bytes of data, but f32 [2,3] needs 24"},
        {1, H("'<f4'", "False", "(2, 3)"), 25, CLEF_FORMAT, "25 bytes"},
        {1, H("'<f4'", "False", "(3)"), 12, CLEF_FORMAT, "no tuple"},
        {1, H("'<f4'", "False", "(-3,)"), 12, CLEF_FORMAT, "something else than numbers"},
        {1, H("'<f4'", "False", "(3 3)"), 36, CLEF_FORMAT, "lacks a comma"},
        {1, H("'<f4'", "False", "(03,)"), 12, CLEF_FORMAT, "something else than numbers"},
        {1, H("'<f4'", "False", "[3]"), 12, CLEF_FORMAT, "no tuple"},
        {1, H("'<f4'", "False", "(9223372036854775808,)"), 12, CLEF_FORMAT, "2^63"},
        {1, H("'<f4'", "False", "(4294967296, 4294967296)"), 0, CLEF_FORMAT, "too large"},
        {1, H("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, CLEF_UNSUPPORTED, "more than 8"},
        {1, H("'<f4'", "0", "(3,)"), 12, CLEF_FORMAT, "fortran_order"},
        {1, H("'<c8'", "False", "(3,)"), 24, CLEF_UNSUPPORTED, "'<c8'"},
        {1, H("'|O'", "False", "(3,)"), 24, CLEF_UNSUPPORTED, "'|O'"},
        {1, H("'|f4'", "False", "(3,)"), 12, CLEF_UNSUPPORTED, "'|f4'"},
        {1, H("[('a', '<f4')]", "False", "(3,)"), 12, CLEF_FORMAT, "structured"},
        {1, H("'<f4\\n'", "False", "(3,)"), 12, CLEF_FORMAT, "strange string"},
        {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 12, CLEF_FORMAT, "repeated"},
        {1, "{'descr': '<f4', 'fortran_order': False}", 12, CLEF_FORMAT, "without descr"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", 12, CLEF_FORMAT, "unknown"},
        {1, "{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}", 12, CLEF_FORMAT, "comma between"},
        {1, "{'descr' '<f4', 'fortran_order': False, 'shape': (3,)}", 12, CLEF_FORMAT, "colon"},
        {1, H("'<f4'", "False", "(3,)") "x", 12, CLEF_FORMAT, "something after"},
        {1, "{'descr': '<f4", 12, CLEF_FORMAT, "does not end"},
        {1, "", 12, CLEF_FORMAT, "no dictionary"},
        {1, "{", 12, CLEF_FORMAT, "without a string"},
    };
    static const uint8_t zeros[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_bytes file = io_npy(cases[i].version, cases[i].header, zeros, cases[i].data);
        verdict v = parse_npy(file.data, file.size);
        if (v.status != cases[i].status || !strstr(v.text, cases[i].said)) {
            fprintf(stderr, "npy %s: status %s, text \"%s\"; wanted \"%s\"\n", cases[i].header, clef_status_name(v.status), v.text,
                    cases[i].said);
            io_failures++;
        }
        for (size_t n = 0; cases[i].status == CLEF_OK && n < file.size; n++) EXPECT(parse_npy(file.data, n).status != CLEF_OK);
        for (size_t at = 0; at < file.size; at++)
            for (int bit = 0; bit < 8; bit++) {
                file.data[at] ^= (uint8_t)(1 << bit);
                parse_npy(file.data, file.size);
                file.data[at] ^= (uint8_t)(1 << bit);
            }
        free(file.data);
    }
    EXPECT(parse_npy((const uint8_t *)"not a npy file", 14).status == CLEF_FORMAT);
    uint8_t huge[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xFF, 0xFF, 0xFF, 0xFF};
    EXPECT(strstr(parse_npy(huge, 12).text, "4294967295") != NULL);
}

static void npy_order(void) {
    /* [[1,2,3],[4,5,6]] column by column, big-endian 16-bit floats are 0x3C00 … */
    static const uint8_t columns[] = {0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 6};
    io_bytes file = io_npy(1, H("'>i4'", "True", "(2, 3)"), columns, sizeof columns);
    clef__reader reader = clef__reader_memory(file.data, file.size);
    clef__npy npy;
    clef__report report = {0};
    int32_t out[6] = {0};
    EXPECT(clef__npy_parse(&reader, &npy, &report) == CLEF_OK && npy.data_bytes == sizeof out);
    EXPECT(clef__npy_data(&reader, &npy, out, &report) == CLEF_OK);
    for (int i = 0; i < 6; i++) EXPECT(out[i] == i + 1);
    free(file.data);
    char header[512];
    size_t n = clef__npy_header(CLEF_SHAPE(3, 4), CLEF_F32, header, sizeof header);
    EXPECT(n == 128 && header[n - 1] == '\n' && header[8] == 118 && header[9] == 0);
    EXPECT(memcmp(header + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } ", 60) == 0);
    n = clef__npy_header(CLEF_SHAPE(7), CLEF_BOOL, header, sizeof header);
    EXPECT(n == 128 && strncmp(header + 10, "{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }", 57) == 0);
    n = clef__npy_header(CLEF_SCALAR, CLEF_I64, header, sizeof header);
    EXPECT(n == 128 && strncmp(header + 10, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 55) == 0);
    EXPECT(clef__npy_header(CLEF_SCALAR, CLEF_BF16, header, sizeof header) == 0);
}

/* ---- numbers ---- */
static void exact_numbers(void) {
    static const double values[] = {0.0,
                                    -0.0,
                                    1.0,
                                    -1.5,
                                    0.1,
                                    1e-3,
                                    5e-324,
                                    2.2250738585072014e-308,
                                    1.7976931348623157e308,
                                    INFINITY,
                                    -INFINITY,
                                    3.141592653589793,
                                    -2.2250738585072009e-308};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double back = 42;
        EXPECT(clef__parse_exact(clef__exact(values[i]).text, &back) && memcmp(&back, &values[i], 8) == 0);
    }
    double nan = 0;
    EXPECT(clef__parse_exact("nan", &nan) && isnan(nan));
    EXPECT(strcmp(clef__exact(0.1).text, "0x1.999999999999ap-4") == 0 &&
           strcmp(clef__exact(-0.0).text, "-0x0.0000000000000p+0") == 0);
    static const char *const bad[] = {"",
                                      "-",
                                      "0.1",
                                      "0x1p-4",
                                      "0x1.999999999999ap-4 ",
                                      "0x1.999999999999ap",
                                      "1e3",
                                      "infinity",
                                      "0x1.999999999999Ap-4",
                                      "0x1.0000000000000p+2000",
                                      "0x1.0000000000000p+99999999999",
                                      "-nan"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) EXPECT(!clef__parse_exact(bad[i], &nan));
    static const int64_t whole[] = {0, 1, -1, INT64_MAX, INT64_MIN, 1234567890123};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        int64_t back = 42;
        EXPECT(clef__parse_decimal(clef__decimal(whole[i]).text, &back) && back == whole[i]);
    }
    uint64_t u = 0;
    int64_t w = 0;
    EXPECT(clef__parse_unsigned("18446744073709551615", &u) && u == UINT64_MAX &&
           !clef__parse_unsigned("18446744073709551616", &u));
    EXPECT(!clef__parse_decimal("9223372036854775808", &w) && !clef__parse_decimal("-9223372036854775809", &w));
    EXPECT(!clef__parse_decimal("-0", &w) && !clef__parse_decimal("", &w) && !clef__parse_decimal("+1", &w));
    EXPECT(!clef__parse_decimal(" 1", &w) && !clef__parse_decimal("01", &w) && !clef__parse_decimal("1x", &w));
}

/* Every 16-bit pattern goes to f32, f64 and back unchanged; rounding is to nearest, ties to even. */
static void conversions(void) {
    static const clef_dtype small[] = {CLEF_F16, CLEF_BF16};
    for (int k = 0; k < 2; k++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, out = 0;
            float f;
            double d;
            clef__convert(&in, small[k], &f, CLEF_F32, 1);
            clef__convert(&in, small[k], &d, CLEF_F64, 1);
            if (isnan(f) || isnan(d)) {
                EXPECT(isnan(f) && isnan(d));
                continue;
            }
            EXPECT((double)f == d);
            clef__convert(&f, CLEF_F32, &out, small[k], 1);
            EXPECT(out == in);
            if (k == 1) {
                uint32_t wide = bits << 16;
                EXPECT(memcmp(&wide, &f, 4) == 0);
            }
        }
    static const struct {
        double value;
        uint16_t half, brain;
    } known[] = {{1.0, 0x3C00, 0x3F80},
                 {-2.0, 0xC000, 0xC000},
                 {65504.0, 0x7BFF, 0x4780},
                 {65519.9, 0x7BFF, 0x4780},
                 {65520.0, 0x7C00, 0x4780},
                 {1e300, 0x7C00, 0x7F80},
                 {5.9604644775390625e-8, 0x0001, 0x3380},
                 {2.98023223876953125e-8, 0x0000, 0x3300},
                 {2.9802322387695316e-8, 0x0001, 0x3300},
                 {1.0 + 1.0 / 2048, 0x3C00, 0x3F80},
                 {1.0 + 3.0 / 2048, 0x3C02, 0x3F80},
                 {1.0 + 1.0 / 256, 0x3C04, 0x3F80},
                 {1.0 + 3.0 / 256, 0x3C0C, 0x3F82},
                 {-0.0, 0x8000, 0x8000},
                 {6.097555160522461e-05, 0x03FF, 0x3880},
                 {INFINITY, 0x7C00, 0x7F80}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint16_t half, brain;
        clef__convert(&known[i].value, CLEF_F64, &half, CLEF_F16, 1);
        clef__convert(&known[i].value, CLEF_F64, &brain, CLEF_BF16, 1);
        if (half != known[i].half || brain != known[i].brain) {
            fprintf(stderr, "%g: half %04x, bfloat %04x; wanted %04x, %04x\n", known[i].value, half, brain, known[i].half,
                    known[i].brain);
            io_failures++;
        }
    }
    EXPECT(clef__convertible(CLEF_F16, CLEF_F64) && !clef__convertible(CLEF_I32, CLEF_F32) &&
           clef__convertible(CLEF_I64, CLEF_I64));
}

int main(void) {
    safetensors_good();
    safetensors_hostile();
    safetensors_lengths();
    safetensors_damage();
    safetensors_values();
    npy_cases();
    npy_order();
    exact_numbers();
    conversions();
    printf("parsers: %d failures\n", io_failures);
    return io_failures != 0;
}
