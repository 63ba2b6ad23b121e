/* npy_header.c — the header of NumPy's .npy files (numpy.lib.format; versions 1.0 to 3.0), read from any bytes.

   "\x93NUMPY", two bytes of version, the header's length (2 bytes in version 1, else 4, little-endian), then a
   Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } padded with spaces and a newline,
   then the data. We take exactly these three keys, in any order, once each, and the data must fill the file
   exactly. */
#include "io_internal.h"
#include <string.h>

enum { MAX_HEADER = 65535 };

static const struct {
    char kind;
    int size;
    clef_dtype dtype;
} types[] = {{'f', 4, CLEF_F32}, {'f', 2, CLEF_F16}, {'f', 8, CLEF_F64}, {'i', 4, CLEF_I32},
             {'i', 8, CLEF_I64}, {'u', 1, CLEF_U8},  {'b', 1, CLEF_BOOL}};
enum { TYPES = sizeof types / sizeof *types };

typedef struct cursor {
    const char *at, *end;
    clef__report *report;
    clef__npy *out;
} cursor;

static bool bad(cursor *c, const char *fact) {
    clef__report_set(c->report, CLEF_FORMAT, "has a header %s", fact);
    return false;
}

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static bool take_char(cursor *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    size_t length = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* A quoted string of printable ASCII without escapes, of fewer than `size` characters. */
static bool string(cursor *c, char *out, size_t size) {
    char quote = take_char(c, '\'') ? '\'' : take_char(c, '"') ? '"' : 0;
    if (!quote) return bad(c, "without a string where one belongs (structured dtypes are not supported)");
    size_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (n + 1 >= size || *c->at == '\\' || *c->at < 32 || *c->at > 126) return bad(c, "with a strange string");
        out[n++] = *c->at++;
    }
    out[n] = 0;
    return take_char(c, quote) || bad(c, "with a string that does not end");
}

static bool parse_descr(cursor *c) {
    char text[16];
    if (!string(c, text, sizeof text)) return false;
    char order = text[0];
    bool known = order == '<' || order == '>' || order == '|' || order == '=';
    for (int i = 0; known && i < TYPES; i++) {
        char wanted[4];
        snprintf(wanted, sizeof wanted, "%c%d", types[i].kind, types[i].size);
        if (strcmp(text + 1, wanted) != 0 || (order == '|' && types[i].size > 1)) continue;
        c->out->dtype = types[i].dtype;
        c->out->big_endian = order == '>' || (order == '=' && clef__big_endian());
        return true;
    }
    clef__report_set(c->report, CLEF_UNSUPPORTED, "has NumPy dtype '%s'; f2, f4, f8, i4, i8, u1 and b1 can be read", text);
    return false;
}

static bool parse_order(cursor *c) {
    c->out->fortran = take_word(c, "True");
    return c->out->fortran || take_word(c, "False") || bad(c, "whose fortran_order is neither True nor False");
}

static bool parse_dimension(cursor *c, int64_t *size) {
    const char *start = c->at;
    int64_t sum = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        int digit = *c->at - '0';
        if (sum > (INT64_MAX - digit) / 10) return bad(c, "with a dimension of 2^63 or more");
        sum = sum * 10 + digit;
    }
    if (c->at == start || (*start == '0' && c->at - start > 1)) return bad(c, "whose shape holds something else than numbers");
    if (c->at < c->end && *c->at == 'L') c->at++; /* written by Python 2 */
    *size = sum;
    return true;
}

/* (), (3,), (3, 4), (3, 4,) */
static bool parse_shape(cursor *c) {
    clef_shape *shape = &c->out->shape;
    bool comma = true;
    if (!take_char(c, '(')) return bad(c, "whose shape is no tuple");
    while (!take_char(c, ')')) {
        if (!comma) return bad(c, "whose shape lacks a comma");
        if (shape->rank == CLEF_MAX_RANK) return clef__report_set(c->report, CLEF_UNSUPPORTED, "has more than 8 dimensions"), false;
        if (!parse_dimension(c, &shape->dim[shape->rank++])) return false;
        comma = take_char(c, ',');
    }
    return shape->rank != 1 || comma || bad(c, "whose shape is a number in brackets and no tuple");
}

static bool parse_dictionary(cursor *c) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    static bool (*const parse[])(cursor *) = {parse_descr, parse_order, parse_shape};
    unsigned seen = 0;
    if (!take_char(c, '{')) return bad(c, "that is no dictionary");
    while (!take_char(c, '}')) {
        char key[16];
        int k = 0;
        if (!string(c, key, sizeof key)) return false;
        while (k < 3 && strcmp(keys[k], key) != 0) k++;
        if (k == 3 || seen & 1u << k) return bad(c, "with an unknown or a repeated key");
        seen |= 1u << k;
        if (!take_char(c, ':')) return bad(c, "without a colon after a key");
        if (!parse[k](c)) return false;
        bool comma = take_char(c, ',');
        skip_space(c);
        if (!comma && (c->at == c->end || *c->at != '}')) return bad(c, "without a comma between its entries");
    }
    skip_space(c);
    if (c->at != c->end) return bad(c, "with something after the dictionary");
    return seen == 7 || bad(c, "without descr, fortran_order or shape");
}

static bool check_size(clef__npy *out, uint64_t file_size, clef__report *report) {
    char shape[96];
    clef_shape_format(out->shape, shape, sizeof shape);
    if (!clef__tensor_bytes(out->shape, out->dtype, &out->data_bytes))
        return clef__report_set(report, CLEF_FORMAT, "has shape %s, which is too large", shape), false;
    if (out->data_bytes == file_size - out->data_offset) return true;
    clef__report_set(report, CLEF_FORMAT, "has %llu bytes of data, but %s %s needs %llu",
                     (unsigned long long)(file_size - out->data_offset), clef_dtype_name(out->dtype), shape,
                     (unsigned long long)out->data_bytes);
    return false;
}

clef_status clef__npy_parse(const clef__reader *reader, clef__npy *out, clef__report *report) {
    uint8_t prefix[12] = {0};
    *out = (clef__npy){0};
    if (reader->size < 10)
        return clef__report_set(report, CLEF_FORMAT, "has %llu bytes, which is no .npy file", (unsigned long long)reader->size);
    if (clef__reader_get(reader, 0, prefix, reader->size < 12 ? reader->size : 12, report) != CLEF_OK) return report->status;
    if (memcmp(prefix, "\x93NUMPY", 6) != 0) return clef__report_set(report, CLEF_FORMAT, "is no .npy file");
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
        return clef__report_set(report, CLEF_UNSUPPORTED, "is .npy version %d.%d; 1.0, 2.0 and 3.0 can be read", prefix[6],
                                prefix[7]);
    uint64_t start = prefix[6] == 1 ? 10 : 12, length = prefix[8] | (uint64_t)prefix[9] << 8;
    if (prefix[6] > 1) length |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
    if (length > MAX_HEADER || start + length > reader->size)
        return clef__report_set(report, CLEF_FORMAT, "says its header has %llu bytes; it is damaged or cut short",
                                (unsigned long long)length);
    char *header = clef__alloc((size_t)length);
    if (!header) return clef__report_set(report, CLEF_MEMORY, "no memory for its header");
    cursor c = {header, header + length, report, out};
    if (clef__reader_get(reader, start, header, length, report) == CLEF_OK && parse_dictionary(&c)) {
        out->data_offset = start + length;
        check_size(out, reader->size, report);
    }
    clef__free(header);
    return report->status;
}

size_t clef__npy_header(clef_shape shape, clef_dtype dtype, char *out, size_t size) {
    int t = 0;
    while (t < TYPES && types[t].dtype != dtype) t++;
    if (t == TYPES) return 0;
    char dims[200] = "";
    for (int d = 0, n = 0; d < shape.rank; d++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%lld%s", d ? ", " : "", (long long)shape.dim[d],
                      shape.rank == 1 ? "," : "");
    char order = types[t].size == 1 ? '|' : '<';
    int length = snprintf(out, size, "\x93NUMPY%c%c%c%c{'descr': '%c%c%d', 'fortran_order': False, 'shape': (%s), }", 1, 0, 0, 0,
                          order, types[t].kind, types[t].size, dims);
    size_t total = ((size_t)length + 1 + 63) / 64 * 64;
    if (length < 0 || total > size) return 0;
    memset(out + length, ' ', total - (size_t)length);
    out[total - 1] = '\n';
    out[8] = (char)((total - 10) & 0xFF);
    out[9] = (char)((total - 10) >> 8);
    return total;
}

/* Column-major to row-major: walks the output in order and follows the input with its strides. */
static void to_row_major(const char *from, char *to, clef_shape shape, size_t element) {
    int64_t index[CLEF_MAX_RANK] = {0}, stride[CLEF_MAX_RANK], n = clef_shape_numel(shape), at = 0;
    for (int d = 0; d < shape.rank; d++) stride[d] = d ? stride[d - 1] * shape.dim[d - 1] : 1;
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * element, from + (size_t)at * element, element);
        for (int d = shape.rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < shape.dim[d]) break;
            at -= stride[d] * shape.dim[d];
            index[d] = 0;
        }
    }
}

clef_status clef__npy_data(const clef__reader *reader, const clef__npy *npy, void *out, clef__report *report) {
    size_t element = clef_dtype_size(npy->dtype);
    bool transpose = npy->fortran && npy->shape.rank > 1 && npy->data_bytes > 0;
    void *data = transpose ? clef__alloc((size_t)npy->data_bytes) : out;
    if (!data) return clef__report_set(report, CLEF_MEMORY, "no memory for %llu bytes", (unsigned long long)npy->data_bytes);
    if (clef__reader_get(reader, npy->data_offset, data, npy->data_bytes, report) == CLEF_OK) {
        if (npy->big_endian != clef__big_endian()) clef__swap_bytes(data, element, npy->data_bytes / element);
        if (transpose) to_row_major(data, out, npy->shape, element);
        uint8_t *truth = out;
        for (uint64_t i = 0; npy->dtype == CLEF_BOOL && i < npy->data_bytes; i++) truth[i] = truth[i] != 0;
    }
    if (transpose) clef__free(data);
    return report->status;
}
