/* safetensors_parse.c — reads and checks the header of a safetensors file (github.com/huggingface/safetensors,
   "Format").

   8 bytes: length n of the header, little-endian · n bytes: JSON that starts with '{' · the data.
   The file may lie.  After success these hold: n ≤ 100 MB and within the file; names and metadata keys are unique,
   valid UTF-8 without zeros; every dtype is known, every rank ≤ CLEF_MAX_RANK; end - begin = numel · size for each
   tensor; in order of begin the tensors cover the data section without holes or overlaps. Memory: at most a few
   times the header's length, which the file must really have. */
#include "io_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char clef__st_metadata_key[] = "__metadata__";
const char clef__st_checksum_key[] = "clef.crc32c";

static const struct {
    const char *name;
    clef_dtype dtype;
} dtypes[] = {{"F32", CLEF_F32}, {"F16", CLEF_F16}, {"BF16", CLEF_BF16}, {"F64", CLEF_F64},
              {"I32", CLEF_I32}, {"I64", CLEF_I64}, {"U8", CLEF_U8},     {"BOOL", CLEF_BOOL}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const char *clef__st_dtype_name(clef_dtype dtype) {
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

typedef struct parser {
    clef__json json;
    clef__report *report;
    clef__st_index *index;
    int tensor_room, pair_room;
    uint64_t data_bytes;
    bool metadata_seen;
} parser;

static bool fail(parser *p, clef_status status, const char *name, const char *fact) {
    clef__report_set(p->report, status, "tensor %s %s", clef__quote(name).text, fact);
    return false;
}

static bool no_memory(parser *p) { return clef__report_set(p->report, CLEF_MEMORY, "no memory for the list of tensors"), false; }

static bool parse_metadata(parser *p) {
    clef__json *json = &p->json;
    if (p->metadata_seen) return clef__json_fail(json, "__metadata__ only once");
    p->metadata_seen = true;
    clef__json_expect(json, "{");
    for (clef__st_pair pair; (pair.key = clef__json_member(json));) {
        if (!(pair.value = clef__json_string(json))) return false;
        if (!clef__grow(&p->index->pair, p->index->pairs, &p->pair_room, sizeof pair)) return no_memory(p);
        p->index->pair[p->index->pairs++] = pair;
    }
    return !json->expected;
}

static bool parse_dtype(parser *p, clef__st_tensor *tensor) {
    const char *name = clef__json_string(&p->json);
    if (!name) return false;
    for (int i = 0; i < DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            tensor->dtype = dtypes[i].dtype;
            return true;
        }
    clef__report_set(p->report, CLEF_UNSUPPORTED, "tensor %s has dtype %s; F32, F16, BF16, F64, I32, I64, U8 and BOOL can be read",
                     clef__quote(tensor->name).text, clef__quote(name).text);
    return false;
}

static bool parse_shape(parser *p, clef__st_tensor *tensor) {
    clef__json *json = &p->json;
    clef__json_expect(json, "[");
    while (clef__json_element(json)) {
        if (tensor->shape.rank == CLEF_MAX_RANK) return fail(p, CLEF_UNSUPPORTED, tensor->name, "has more than 8 dimensions");
        if (!clef__json_whole(json, &tensor->shape.dim[tensor->shape.rank++])) return false;
    }
    return !json->expected;
}

static bool parse_offsets(parser *p, clef__st_tensor *tensor) {
    clef__json *json = &p->json;
    return clef__json_expect(json, "[") && clef__json_whole(json, (int64_t *)&tensor->begin) && clef__json_expect(json, ",") &&
           clef__json_whole(json, (int64_t *)&tensor->end) && clef__json_expect(json, "]");
}

static bool parse_member(parser *p, const char *key, clef__st_tensor *tensor, unsigned *seen) {
    static const char *const members[] = {"dtype", "shape", "data_offsets"};
    static bool (*const parse[])(parser *, clef__st_tensor *) = {parse_dtype, parse_shape, parse_offsets};
    for (int i = 0; i < 3; i++)
        if (strcmp(key, members[i]) == 0) {
            if (*seen & 1u << i) return fail(p, CLEF_FORMAT, tensor->name, "says the same thing twice");
            *seen |= 1u << i;
            return parse[i](p, tensor);
        }
    return clef__json_fail(&p->json, "dtype, shape or data_offsets");
}

static bool check_size(parser *p, const clef__st_tensor *tensor) {
    uint64_t bytes;
    if (tensor->end < tensor->begin || tensor->end > p->data_bytes)
        return fail(p, CLEF_FORMAT, tensor->name, "lies outside the file's data; the file is damaged or cut short");
    if (!clef__tensor_bytes(tensor->shape, tensor->dtype, &bytes) || bytes != tensor->end - tensor->begin)
        return fail(p, CLEF_FORMAT, tensor->name, "has another number of bytes than its shape and dtype say");
    return true;
}

static bool parse_tensor(parser *p, const char *name) {
    clef__st_tensor tensor = {.name = name};
    unsigned seen = 0;
    clef__json_expect(&p->json, "{");
    if (clef__json_peek(&p->json) == '}') return clef__json_fail(&p->json, "a string"); /* the name of a member */
    for (const char *key; (key = clef__json_member(&p->json));)
        if (!parse_member(p, key, &tensor, &seen)) return false;
    if (p->json.expected) return false;
    if (seen != 7) return fail(p, CLEF_FORMAT, name, "lacks dtype, shape or data_offsets");
    if (!check_size(p, &tensor)) return false;
    if (!clef__grow(&p->index->tensor, p->index->n, &p->tensor_room, sizeof tensor)) return no_memory(p);
    p->index->tensor[p->index->n++] = tensor;
    return true;
}

static bool parse_entries(parser *p) {
    clef__json *json = &p->json;
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));)
        if (!(strcmp(name, clef__st_metadata_key) == 0 ? parse_metadata(p) : parse_tensor(p, name))) return false;
    return clef__json_at_end(json) || clef__json_fail(json, "nothing but white space after the closing brace");
}

/* ---- order, holes, doubles ---- */
static int by_place(const void *left, const void *right) {
    const clef__st_tensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *left, const void *right) {
    return strcmp((*(clef__st_tensor *const *)left)->name, (*(clef__st_tensor *const *)right)->name);
}

static int by_key(const void *left, const void *right) {
    return strcmp(((const clef__st_pair *)left)->key, ((const clef__st_pair *)right)->key);
}

static bool check_cover(parser *p) {
    clef__st_index *index = p->index;
    uint64_t end = 0;
    if (index->n) qsort(index->tensor, (size_t)index->n, sizeof *index->tensor, by_place);
    for (int i = 0; i < index->n; i++) {
        const clef__st_tensor *tensor = &index->tensor[i];
        if (tensor->begin < end) return fail(p, CLEF_FORMAT, tensor->name, "overlaps another one");
        if (tensor->begin > end) return fail(p, CLEF_FORMAT, tensor->name, "comes after a hole in the data");
        end = tensor->end;
    }
    if (end != p->data_bytes)
        clef__report_set(p->report, CLEF_FORMAT, "%llu bytes of data belong to no tensor",
                         (unsigned long long)(p->data_bytes - end));
    return end == p->data_bytes;
}

static bool check_unique(parser *p) {
    clef__st_index *index = p->index;
    if (index->n && !(index->by_name = clef__alloc((size_t)index->n * sizeof *index->by_name))) return no_memory(p);
    for (int i = 0; i < index->n; i++) index->by_name[i] = &index->tensor[i];
    if (index->n) qsort(index->by_name, (size_t)index->n, sizeof *index->by_name, by_name);
    for (int i = 1; i < index->n; i++)
        if (strcmp(index->by_name[i - 1]->name, index->by_name[i]->name) == 0)
            return fail(p, CLEF_FORMAT, index->by_name[i]->name, "is there twice");
    if (index->pairs) qsort(index->pair, (size_t)index->pairs, sizeof *index->pair, by_key);
    for (int i = 1; i < index->pairs; i++)
        if (strcmp(index->pair[i - 1].key, index->pair[i].key) == 0) {
            clef__report_set(p->report, CLEF_FORMAT, "metadata %s is there twice", clef__quote(index->pair[i].key).text);
            return false;
        }
    return true;
}

/* The header's text, checked for size. */
static char *read_header(const clef__reader *reader, size_t *length, clef__report *report) {
    uint8_t prefix[8];
    uint64_t size = 0;
    if (reader->size < 8) {
        clef__report_set(report, CLEF_FORMAT, "has %llu bytes, which is no safetensors file", (unsigned long long)reader->size);
        return NULL;
    }
    if (clef__reader_get(reader, 0, prefix, 8, report) != CLEF_OK) return NULL;
    for (int i = 7; i >= 0; i--) size = size << 8 | prefix[i];
    if (size > CLEF__ST_MAX_HEADER || size > reader->size - 8 || size < 2) {
        clef__report_set(report, CLEF_FORMAT, "says its header has %llu bytes; it is no safetensors file or cut short",
                         (unsigned long long)size);
        return NULL;
    }
    char *header = clef__alloc((size_t)size);
    if (!header) clef__report_set(report, CLEF_MEMORY, "no memory for a header of %llu bytes", (unsigned long long)size);
    else if (clef__reader_get(reader, 8, header, size, report) == CLEF_OK && header[0] != '{')
        clef__report_set(report, CLEF_FORMAT, "has a header that does not start with '{'; it is no safetensors file");
    if (report->status == CLEF_OK) return *length = (size_t)size, header;
    clef__free(header);
    return NULL;
}

clef_status clef__st_parse(const clef__reader *reader, clef__st_index *index, clef__report *report) {
    *index = (clef__st_index){0};
    size_t length;
    char *header = read_header(reader, &length, report);
    if (!header) return report->status;
    index->header = header;
    index->data_offset = 8 + (uint64_t)length;
    parser p = {
        .json = clef__json_of(header, length), .report = report, .index = index, .data_bytes = reader->size - index->data_offset};
    if (parse_entries(&p) && check_cover(&p) && check_unique(&p)) return CLEF_OK;
    if (p.json.expected)
        clef__report_set(report, CLEF_FORMAT, "byte %lld of the header: expected %s", (long long)(p.json.at - p.json.start),
                         p.json.expected);
    clef__st_free(index);
    return report->status;
}

void clef__st_free(clef__st_index *index) {
    clef__free(index->by_name);
    clef__free(index->tensor);
    clef__free(index->pair);
    clef__free(index->header);
    *index = (clef__st_index){0};
}

static int name_against(const void *key, const void *element) { return strcmp(key, (*(clef__st_tensor *const *)element)->name); }

const clef__st_tensor *clef__st_find(const clef__st_index *index, const char *name) {
    clef__st_tensor **found =
        index->n ? bsearch(name, index->by_name, (size_t)index->n, sizeof *index->by_name, name_against) : NULL;
    return found ? *found : NULL;
}

static int key_against(const void *key, const void *element) { return strcmp(key, ((const clef__st_pair *)element)->key); }

const char *clef__st_metadata(const clef__st_index *index, const char *key) {
    const clef__st_pair *found =
        index->pairs ? bsearch(key, index->pair, (size_t)index->pairs, sizeof *index->pair, key_against) : NULL;
    return found ? found->value : NULL;
}

clef_status clef__st_read(const clef__reader *reader, const clef__st_index *index, const clef__st_tensor *tensor, void *out,
                          clef__report *report) {
    uint64_t bytes = tensor->end - tensor->begin, element = clef_dtype_size(tensor->dtype);
    if (clef__reader_get(reader, index->data_offset + tensor->begin, out, bytes, report) != CLEF_OK) return report->status;
    if (clef__big_endian()) clef__swap_bytes(out, element, bytes / element);
    uint8_t *truth = out;
    for (uint64_t i = 0; tensor->dtype == CLEF_BOOL && i < bytes; i++) truth[i] = truth[i] != 0;
    return CLEF_OK;
}

/* ---- the checksum ---- */
enum { CHUNK = 1 << 18 };

/* Zeros over the part of the digits (from `at`) that lies within the n bytes read from `offset`. */
static void blank_digits(uint8_t *bytes, uint64_t offset, size_t n, uint64_t at) {
    for (uint64_t i = at; i < at + CLEF__ST_CHECKSUM_DIGITS; i++)
        if (i >= offset && i < offset + n) bytes[i - offset] = '0';
}

/* Of the whole file but the digits at `at`. */
static bool sum(const clef__reader *reader, uint64_t at, uint32_t *checksum, clef__report *report) {
    uint8_t *bytes = clef__alloc(CHUNK);
    if (!bytes) clef__report_set(report, CLEF_MEMORY, "no memory to check it");
    for (uint64_t offset = 0; report->status == CLEF_OK && offset < reader->size; offset += CHUNK) {
        size_t n = reader->size - offset < CHUNK ? (size_t)(reader->size - offset) : CHUNK;
        if (clef__reader_get(reader, offset, bytes, n, report) != CLEF_OK) break;
        blank_digits(bytes, offset, n, at);
        *checksum = clef__crc32c(*checksum, bytes, n);
    }
    clef__free(bytes);
    return report->status == CLEF_OK;
}

clef_status clef__st_verify(const clef__reader *reader, const clef__st_index *index, bool *present, clef__report *report) {
    const char *said = clef__st_metadata(index, clef__st_checksum_key);
    char digits[CLEF__ST_CHECKSUM_DIGITS + 1] = "";
    uint32_t checksum = 0;
    if (present) *present = said != NULL;
    /* A string begins in the parsed header where it begins in the file. */
    if (!said || !sum(reader, 8 + (uint64_t)(said - index->header), &checksum, report)) return report->status;
    snprintf(digits, sizeof digits, "%08" PRIx32, checksum);
    if (strcmp(said, digits) == 0) return CLEF_OK;
    return clef__report_set(report, CLEF_FORMAT,
                            "is damaged: its checksum is %s, and its content gives %s; take another copy (a "
                            "program that changed it on purpose must drop %s)",
                            clef__quote(said).text, digits, clef__st_checksum_key);
}
