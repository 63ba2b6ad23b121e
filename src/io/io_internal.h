/* io_internal.h — what the files of this room share.  Parsers work on a clef__reader, which may be a file or bytes
   in memory, and write their verdict into a clef__report: none of them needs a device. */
#ifndef CLEF_IO_INTERNAL_H
#define CLEF_IO_INTERNAL_H
#include "clef/io.h"
#include "runtime/json.h"
#include "runtime/runtime.h"
#include "runtime/text.h"

/* ---- reports: the first failure, as one line without the file's name ---- */
typedef struct clef__report {
    clef_status status;
    char text[480];
} clef__report;
/* Keeps the line if it is the first; returns status. */
clef_status clef__report_set(clef__report *report, clef_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Hands a report to the context as "op: path: text"; returns its status. */
clef_status clef__report_fail(clef_context *ctx, const char *op, const char *path, const clef__report *report);
/* Up to 60 characters of a name from a file, controls replaced, so that an error stays one line. */
typedef struct clef__quoted {
    char text[80];
} clef__quoted;
clef__quoted clef__quote(const char *name);

/* ---- reading (file.c) ---- */
typedef struct clef__reader {
    int fd; /* -1: bytes in memory */
    const uint8_t *memory;
    uint64_t size;
} clef__reader;
/* Opens a regular file. */
clef_status clef__reader_open(clef__reader *reader, const char *path, clef__report *report);
clef__reader clef__reader_memory(const void *bytes, size_t size);
clef_status clef__reader_get(const clef__reader *reader, uint64_t offset, void *out, uint64_t bytes, clef__report *report);
void clef__reader_close(clef__reader *reader);

/* ---- writing (file.c): a locked temporary beside the target, renamed over it by commit ---- */
typedef struct clef__writer {
    int fd;
    char *path, *temporary;
    int mode; /* of the file that is replaced; -1: there is none */
    uint64_t written;
    clef__report *report;
} clef__writer;
clef_status clef__writer_open(clef__writer *writer, const char *path, clef__report *report);
clef_status clef__writer_put(clef__writer *writer, const void *bytes, size_t size);
/* Writes over bytes that were put before. */
clef_status clef__writer_patch(clef__writer *writer, uint64_t offset, const void *bytes, size_t size);
clef_status clef__writer_commit(clef__writer *writer); /* fsync, rename, fsync of the directory */
void clef__writer_abort(clef__writer *writer);         /* removes the temporary; harmless after commit */
/* Removes what killed writers left in a directory, as far as that goes. */
void clef__remove_abandoned(const char *directory);

/* ---- checksums (crc32c.c) ---- */
/* Of bytes that follow those whose checksum is `crc` (0: of none). */
uint32_t clef__crc32c(uint32_t crc, const void *data, size_t n);

/* ---- notation (notation.c) ---- */
bool clef__utf8_valid(const char *s);
/* Numbers that come back bit for bit in any locale: C99's hexadecimal form with 13 digits, inf, nan. */
typedef struct clef__number {
    char text[32];
} clef__number;
clef__number clef__exact(double value);
bool clef__parse_exact(const char *text, double *value);
clef__number clef__decimal(int64_t value);
bool clef__parse_decimal(const char *text, int64_t *value);
clef__number clef__unsigned(uint64_t value);
bool clef__parse_unsigned(const char *text, uint64_t *value);

/* ---- dtypes (convert.c) ---- */
bool clef__convertible(clef_dtype from, clef_dtype to); /* the same, or both floating point */
/* Rounds to nearest, ties to even; NaN stays NaN. */
void clef__convert(const void *from, clef_dtype from_dtype, void *to, clef_dtype to_dtype, int64_t n);
void clef__swap_bytes(void *data, size_t element, uint64_t n);
bool clef__big_endian(void);
/* Bytes of a tensor; false when that overflows. */
bool clef__tensor_bytes(clef_shape shape, clef_dtype dtype, uint64_t *bytes);

/* ---- safetensors (safetensors_parse.c, safetensors_write.c) ---- */
typedef struct clef__st_tensor {
    const char *name;
    clef_shape shape;
    clef_dtype dtype;
    uint64_t begin, end; /* within the data section */
} clef__st_tensor;
typedef struct clef__st_pair {
    const char *key, *value;
} clef__st_pair;
/* A checked header: tensors lie one after another from 0 to the end of the data, names and keys are unique. */
typedef struct clef__st_index {
    char *header;            /* the strings point in here */
    clef__st_tensor *tensor; /* in the order of the data */
    clef__st_tensor **by_name;
    clef__st_pair *pair; /* by key */
    int n, pairs;
    uint64_t data_offset; /* in the file */
} clef__st_index;
/* Checks the whole header; *index is empty after a failure. */
clef_status clef__st_parse(const clef__reader *reader, clef__st_index *index, clef__report *report);
void clef__st_free(clef__st_index *index);
const clef__st_tensor *clef__st_find(const clef__st_index *index, const char *name);
const char *clef__st_metadata(const clef__st_index *index, const char *key);
/* Reads tensor data in the host's byte order; out holds end - begin bytes. */
clef_status clef__st_read(const clef__reader *reader, const clef__st_index *index, const clef__st_tensor *tensor, void *out,
                          clef__report *report);
const char *clef__st_dtype_name(clef_dtype dtype); /* "F32" */
extern const char clef__st_metadata_key[];         /* "__metadata__" */
/* The checksum of a file is metadata like any other, which other readers pass by: CRC-32C, as eight hexadecimal digits, of the
   whole file with '0' in the place of each of them. */
extern const char clef__st_checksum_key[]; /* "clef.crc32c" */
enum { CLEF__ST_CHECKSUM_DIGITS = 8 };
/* Reads the whole file and compares; *present (may be NULL): does it have a checksum at all?  One without is taken as it is. */
clef_status clef__st_verify(const clef__reader *reader, const clef__st_index *index, bool *present, clef__report *report);
enum { CLEF__ST_MAX_HEADER = 100 * 1000 * 1000 };

typedef struct clef__st_item {
    const char *name;
    clef_shape shape;
    clef_dtype dtype;
} clef__st_item;
/* Fills `bytes` bytes of item i, row-major, in the host's byte order. */
typedef clef_status (*clef__st_source)(void *user, int i, void *out, size_t bytes, clef__report *report);
/* metadata: pairs of strings, NULL-terminated, or NULL.  The value of clef__st_checksum_key is found out here, whatever is given.
 */
clef_status clef__st_write(const char *path, const clef__st_item *items, int n, const char *const *metadata, clef__st_source source,
                           void *user, clef__report *report);

/* ---- files and named tensors (exchange.c) ---- */
/* In one plan. */
void clef__compute_tensors(const clef_named_tensor *tensors, int n, clef__report *report);
clef_status clef__write_tensors(const char *path, const clef_named_tensor *tensors, int n, const char *const *metadata,
                                clef__report *report);
/* The same with what clef_save says of a file (model.c). */
clef_status clef__write_model(const char *path, const clef_named_tensor *tensors, int n, clef__report *report);
typedef struct clef__fill {
    clef_tensor *target, *value;
    const clef__st_tensor *source;
} clef__fill;
/* Finds prefix + name of each target in the file and checks shape and dtype; every tensor of the file under prefix
   must be wanted.  Fills n entries of fill. */
clef_status clef__match(const clef__st_index *index, const char *prefix, const clef_named_tensor *targets, int n, clef__fill *fill,
                        clef__report *report);
/* One tensor of the file as a temporary of this dtype on this device, converted between floating-point formats;
   NULL after a report. */
clef_tensor *clef__upload(clef_context *ctx, int device, const clef__reader *reader, const clef__st_index *index,
                          const clef__st_tensor *source, clef_dtype dtype, clef__report *report);
/* Reads and uploads the values without touching the targets, then: */
clef_status clef__stage(clef_context *ctx, const clef__reader *reader, const clef__st_index *index, clef__fill *fill, int n,
                        clef__report *report);
/* gives them to the targets, which cannot fail. */
void clef__assign_all(const clef__fill *fill, int n);

/* layouts.c: evaluates all, and how they lie, by the names that they have in the file; the caller frees it.  NULL after a report.  Then: values of
   a staged list are laid so. */
char *clef__layouts_text(const clef_named_tensor *tensors, int n, clef__report *report);
void clef__layouts_apply(clef_context *ctx, const char *text, clef__fill *fill, int n, clef__report *report);
/* extra.c: are these values whole, to be saved or to be filled?  False after a report. */
bool clef__extra_check(const clef_extra *extra, int n, bool saves, clef__report *report);
/* n pairs of strings, key and value, as metadata; NULL after a report. */
char **clef__extra_pairs(const clef_extra *extra, int n, clef__report *report);
void clef__extra_free(char **pair, int n); /* NULL is allowed */
/* Does the file have them all, of their kinds?  Then they can be taken, which cannot fail. */
bool clef__extra_examine(const clef__st_index *index, const clef_extra *extra, int n, clef__report *report);
void clef__extra_take(const clef__st_index *index, const clef_extra *extra, int n);

/* The module's tensors as a new array. */
clef_named_tensor *clef__module_list(const clef_module *module, int *n);

/* The same for what fits, whose entries of fill come first, *n_fits of them; the names of the rest are listed. */
clef_status clef__match_partial(clef_context *ctx, const clef__st_index *index, const char *prefix,
                                const clef_named_tensor *targets, int n, clef__fill *fill, int *n_fits, clef__report *report);
/* The lists of the last clef__match_partial, which succeeded. */
void clef__load_result(clef_context *ctx, int n_loaded, clef_load_result *result);

/* ---- what this room hangs on a context (safetensors.c) ---- */
typedef struct clef__load_lists clef__load_lists;
typedef struct clef__io {
    clef_safetensors *files; /* that are open */
    clef__load_lists *lists; /* of the last clef_load_with; NULL: there was none */
} clef__io;
clef__io *clef__io_of(clef_context *ctx);            /* NULL: out of memory */
void clef__load_lists_free(clef__load_lists *lists); /* NULL is allowed */

/* Bytes that are not UTF-8 become '?', as they do in a checkpoint's note. */
void clef__clean_text(char *text);
extern const char clef__checkpoint_key[]; /* metadata that marks a checkpoint */
/* Is it a whole checkpoint with good numbers for the parts that `what` has?  Their tensors are not looked at. */
clef_status clef__checkpoint_examine(const clef__reader *reader, const clef_checkpoint *what, clef_checkpoint *seen,
                                     clef__report *report);
/* Looks at epoch, metric and note_out of a whole file before anything changes: false after a report keeps it so. */
typedef bool (*clef__checkpoint_judge)(void *user, const clef_checkpoint *seen, clef__report *report);
/* clef_checkpoint_load in the name of `op`; judge may be NULL. */
clef_status clef__checkpoint_load(clef_context *ctx, const char *op, const char *path, clef_checkpoint *what,
                                  clef__checkpoint_judge judge, void *user);

/* ---- .npy headers (npy_header.c) ---- */
typedef struct clef__npy {
    clef_dtype dtype;
    clef_shape shape;
    bool big_endian, fortran;
    uint64_t data_offset, data_bytes;
} clef__npy;
clef_status clef__npy_parse(const clef__reader *reader, clef__npy *out, clef__report *report);
/* The whole header with padding to a multiple of 64 bytes; returns its length, 0 if NumPy has no such dtype. */
size_t clef__npy_header(clef_shape shape, clef_dtype dtype, char *out, size_t size);
/* The data as row-major values in the host's byte order; out holds data_bytes. */
clef_status clef__npy_data(const clef__reader *reader, const clef__npy *npy, void *out, clef__report *report);
#endif
