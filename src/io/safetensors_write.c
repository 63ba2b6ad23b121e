/* safetensors_write.c — writes a safetensors file tensor by tensor, so that one tensor at a time is in host
   memory.

   The header is padded with spaces to a multiple of 8 bytes and the data ordered by falling element size: every
   tensor then lies at a multiple of its element size in the file.  A checksum stands before what it is about: zeros hold its
   place until everything is written. */
#include "io_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const clef__st_item *item;
    int n;
    int *order; /* of the data */
    uint64_t largest;
    uint64_t checksum_at; /* in the file; 0: it has none */
    uint32_t checksum;    /* of what is written so far */
    clef__report *report;
} job;

static int by_text(const void *left, const void *right) { return strcmp(*(const char *const *)left, *(const char *const *)right); }

/* Are n strings valid UTF-8 and all different?  Sorts them. */
static bool check_names(const char **names, int n, const char *what, clef__report *report) {
    for (int i = 0; i < n; i++)
        if (!clef__utf8_valid(names[i]))
            return clef__report_set(report, CLEF_INVALID, "%s %s is not UTF-8", what, clef__quote(names[i]).text), false;
    if (n) qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return clef__report_set(report, CLEF_INVALID, "%s %s is given twice", what, clef__quote(names[i]).text), false;
    return true;
}

static bool check_items(job *j) {
    const char **names = clef__alloc((size_t)j->n * sizeof *names);
    if (!names) return clef__report_set(j->report, CLEF_MEMORY, "no memory for %d names", j->n), false;
    bool good = true;
    for (int i = 0; good && i < j->n; i++) {
        const clef__st_item *item = &j->item[i];
        uint64_t bytes;
        good = false;
        if (!item->name || strcmp(item->name, clef__st_metadata_key) == 0)
            clef__report_set(j->report, CLEF_INVALID, "tensor %d has no name, or %s for one", i, clef__st_metadata_key);
        else if (!clef__tensor_bytes(item->shape, item->dtype, &bytes))
            clef__report_set(j->report, CLEF_SHAPE, "tensor %s is too large", clef__quote(item->name).text);
        else good = true;
        if (!good) break;
        names[i] = item->name;
        if (bytes > j->largest) j->largest = bytes;
    }
    good = good && check_names(names, j->n, "tensor name", j->report);
    clef__free(names);
    return good;
}

static bool check_metadata(const char *const *metadata, clef__report *report) {
    int pairs = 0;
    while (metadata && metadata[2 * pairs]) {
        const char *value = metadata[2 * pairs++ + 1];
        if (!value || !clef__utf8_valid(value)) {
            clef__report_set(report, CLEF_INVALID, "metadata %s has no value, or one that is not UTF-8",
                             clef__quote(metadata[2 * pairs - 2]).text);
            return false;
        }
    }
    const char **keys = clef__alloc((size_t)pairs * sizeof *keys);
    if (!keys) return clef__report_set(report, CLEF_MEMORY, "no memory for the metadata"), false;
    for (int i = 0; i < pairs; i++) keys[i] = metadata[2 * i];
    bool good = check_names(keys, pairs, "metadata key", report);
    clef__free(keys);
    return good;
}

/* A stable order by falling element size: sizes are 8, 4, 2 and 1. */
static bool make_order(job *j) {
    int at = 0;
    if (!(j->order = clef__alloc((size_t)j->n * sizeof *j->order)))
        return clef__report_set(j->report, CLEF_MEMORY, "no memory for %d tensors", j->n), false;
    for (size_t size = 8; size; size /= 2)
        for (int i = 0; i < j->n; i++)
            if (clef_dtype_size(j->item[i].dtype) == size) j->order[at++] = i;
    return true;
}

static const char no_checksum[] = "00000000";

static void put_metadata(job *j, clef__text *text, const char *const *metadata) {
    clef__text_json(text, clef__st_metadata_key);
    clef__text_add(text, ":{");
    for (int i = 0; metadata[i]; i += 2) {
        if (i) clef__text_append(text, ",");
        clef__text_json(text, metadata[i]);
        clef__text_append(text, ":");
        bool checksum = strcmp(metadata[i], clef__st_checksum_key) == 0;
        if (checksum) j->checksum_at = text->length + 1;
        clef__text_json(text, checksum ? no_checksum : metadata[i + 1]);
    }
    clef__text_append(text, "}");
}

static void put_item(clef__text *text, const clef__st_item *item, uint64_t begin, uint64_t end) {
    clef__text_json(text, item->name);
    clef__text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", clef__st_dtype_name(item->dtype));
    for (int d = 0; d < item->shape.rank; d++) clef__text_add(text, "%s%lld", d ? "," : "", (long long)item->shape.dim[d]);
    clef__text_add(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin, (unsigned long long)end);
}

/* The 8 bytes of length and the header. */
static bool make_header(job *j, const char *const *metadata, clef__text *text) {
    uint64_t begin = 0, bytes = 0;
    bool first = true;
    clef__text_put(text, "\0\0\0\0\0\0\0\0{", 9);
    if (metadata && metadata[0]) {
        put_metadata(j, text, metadata);
        first = false;
    }
    for (int i = 0; i < j->n; i++, begin += bytes, first = false) {
        const clef__st_item *item = &j->item[j->order[i]];
        if (!clef__tensor_bytes(item->shape, item->dtype, &bytes) || bytes > (uint64_t)INT64_MAX - begin)
            return clef__report_set(j->report, CLEF_SHAPE, "all tensors together are too large for a file"), false;
        if (!first) clef__text_append(text, ",");
        put_item(text, item, begin, begin + bytes);
    }
    clef__text_append(text, "}");
    while (text->length % 8 && !text->failed) clef__text_put(text, " ", 1);
    uint64_t length = text->length - 8;
    if (text->failed) return clef__report_set(j->report, CLEF_MEMORY, "no memory for the header"), false;
    if (length > CLEF__ST_MAX_HEADER)
        return clef__report_set(j->report, CLEF_INVALID, "names and metadata need more than 100 MB"), false;
    for (int i = 0; i < 8; i++) text->data[i] = (char)(length >> (8 * i) & 0xFF);
    return true;
}

static void put_bytes(job *j, clef__writer *writer, const void *bytes, size_t size) {
    if (j->checksum_at) j->checksum = clef__crc32c(j->checksum, bytes, size);
    clef__writer_put(writer, bytes, size);
}

static void put_checksum(job *j, clef__writer *writer) {
    char digits[CLEF__ST_CHECKSUM_DIGITS + 1];
    if (!j->checksum_at || j->report->status != CLEF_OK) return;
    snprintf(digits, sizeof digits, "%08" PRIx32, j->checksum);
    clef__writer_patch(writer, j->checksum_at, digits, CLEF__ST_CHECKSUM_DIGITS);
}

static void put_data(job *j, clef__writer *writer, clef__st_source source, void *user) {
    void *buffer = clef__alloc((size_t)j->largest);
    if (!buffer) clef__report_set(j->report, CLEF_MEMORY, "no memory for %llu bytes", (unsigned long long)j->largest);
    for (int i = 0; j->report->status == CLEF_OK && i < j->n; i++) {
        const clef__st_item *item = &j->item[j->order[i]];
        size_t element = clef_dtype_size(item->dtype), bytes = (size_t)clef_shape_numel(item->shape) * element;
        if (bytes == 0) continue;
        clef_status status = source(user, j->order[i], buffer, bytes, j->report);
        if (status != CLEF_OK) {
            clef__report_set(j->report, status, "tensor %s could not be read", clef__quote(item->name).text);
            break;
        }
        if (clef__big_endian()) clef__swap_bytes(buffer, element, bytes / element);
        put_bytes(j, writer, buffer, bytes);
    }
    clef__free(buffer);
}

clef_status clef__st_write(const char *path, const clef__st_item *items, int n, const char *const *metadata, clef__st_source source,
                           void *user, clef__report *report) {
    job j = {.item = items, .n = n, .report = report};
    clef__text header = {0};
    clef__writer writer;
    if (check_items(&j) && check_metadata(metadata, report) && make_order(&j) && make_header(&j, metadata, &header) &&
        clef__writer_open(&writer, path, report) == CLEF_OK) {
        put_bytes(&j, &writer, header.data, header.length);
        put_data(&j, &writer, source, user);
        put_checksum(&j, &writer);
        if (report->status == CLEF_OK) clef__writer_commit(&writer);
        else clef__writer_abort(&writer);
    }
    clef__free(header.data);
    clef__free(j.order);
    return report->status;
}
