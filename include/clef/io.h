/* clef/io.h — files: safetensors, checkpoints, .npy.

   Every write goes to a temporary in the target's directory that is made durable and renamed: whoever looks, and whoever
   is killed, finds the old file or the new one.  A failure (disk full, no permission) leaves the old file as it was.
   Every read takes the file for hostile: it is checked whole before anything changes, with CLEF_FORMAT for a damaged file,
   CLEF_UNSUPPORTED for one of a kind we do not read and CLEF_IO when the system refuses. */
#ifndef CLEF_IO_H
#define CLEF_IO_H
#include "optim.h"
#include "data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes parameters and buffers of a module as safetensors, by the names of clef_module_tensor ("0.weight"), which are
   PyTorch's.  Metadata "clef.crc32c" is a checksum of the whole file, which other readers pass by.
       clef_save(net, "net.safetensors");  */
CLEF_API clef_status clef_save(clef_module *module, const char *path);
/* Fills a module of the same structure from such a file, or from the model in a checkpoint.  A missing, surplus or
   misshaped tensor is an error and changes nothing, and so is a checksum that does not fit; files without one are taken
   as they are.  f16, bf16, f32 and f64 are converted into each other, rounded to
   nearest; other dtypes must agree. */
CLEF_API clef_status clef_load(clef_module *module, const char *path);
typedef struct clef_load_options {
    bool partial; /* fill what fits and leave the rest as it is; false: all must fit, as with clef_load */
} clef_load_options;
/* Names as clef_module_tensor has them: missing in the file; in the file and not in the module; in both, but with another shape or
   a dtype that is not converted.  They belong to the context and live until its next clef_load_with.  n_loaded: tensors that were
   filled. */
typedef struct clef_load_result {
    const char *const *missing, *const *unexpected, *const *mismatched;
    int n_missing, n_unexpected, n_mismatched, n_loaded;
} clef_load_result;
/* clef_load, or as much of it as fits.  *result (may be NULL) says what does not, also when that is why nothing was loaded.  A
   damaged file is an error and changes nothing, partial or not.  Options NULL: all defaults.
       clef_load_with(net, "backbone.safetensors", &(clef_load_options){.partial = true}, &found);  */
CLEF_API clef_status clef_load_with(clef_module *module, const char *path, const clef_load_options *options,
                                    clef_load_result *result);

/* ---- safetensors (github.com/huggingface/safetensors) ---- */
/* Writes any named tensors; names must differ and be UTF-8.  metadata: pairs of strings (key, value), NULL-terminated, or
   NULL; "clef.crc32c" gets the file's checksum for its value.  One tensor at a time is held in host memory. */
CLEF_API clef_status clef_safetensors_write(clef_context *ctx, const char *path, const clef_named_tensor *tensors, int n,
                                            const char *const *metadata);
typedef struct clef_safetensors clef_safetensors; /* an open, fully checked file */
/* Opens a file and checks its header; tensors are read when asked for.  The handle keeps seeing this file when the path is
   replaced.  Close it, or let clef_close do it.  NULL on failure. */
CLEF_API clef_safetensors *clef_safetensors_open(clef_context *ctx, const char *path);
/* Frees the handle and the strings it gave out, not the tensors; NULL is allowed. */
CLEF_API void clef_safetensors_close(clef_safetensors *file);
/* Number of tensors, indexed from 0 in the order of the data. */
CLEF_API int clef_safetensors_count(const clef_safetensors *file);
/* Name of tensor i, living as long as the handle; NULL if there is none. */
CLEF_API const char *clef_safetensors_name(const clef_safetensors *file, int i);
/* Puts the index of the tensor of that name into *i (may be NULL); false if there is none. */
CLEF_API bool clef_safetensors_find(const clef_safetensors *file, const char *name, int *i);
/* Shape of tensor i; that of a scalar if there is none. */
CLEF_API clef_shape clef_safetensors_shape(const clef_safetensors *file, int i);
/* Dtype of tensor i; CLEF_DTYPE_COUNT if there is none. */
CLEF_API clef_dtype clef_safetensors_dtype(const clef_safetensors *file, int i);
/* Reads tensor i as a temporary of its own dtype; NULL on failure. */
CLEF_API clef_tensor *clef_safetensors_tensor(clef_safetensors *file, int i);
/* Metadata under a key, living as long as the handle; NULL if there is none. */
CLEF_API const char *clef_safetensors_metadata(const clef_safetensors *file, const char *key);

/* ---- NumPy's .npy (numpy.lib.format) ---- */
/* Writes version 1.0: f32, f16, f64, i32, i64, u8, bool.  bf16 is CLEF_DTYPE: NumPy has no such type. */
CLEF_API clef_status clef_npy_write(clef_tensor *t, const char *path);
/* Reads versions 1.0 to 3.0 of the same dtypes, Fortran order and big-endian too, as a temporary; NULL on failure. */
CLEF_API clef_tensor *clef_npy_read(clef_context *ctx, const char *path);

/* ---- checkpoints: everything that exact resuming needs, in one safetensors file ----
   Tensors are named "model.…", "optimizer.…" and "averaged.…"; numbers are metadata, as text that comes back bit for bit.  A checksum
   covers every byte.  Files of before it (format 1) are read with a warning in the log. */
/* A value of the program's own in a checkpoint.  One of the three pointers is given: it is read on saving and filled on loading. */
typedef struct clef_extra {
    const char *name; /* UTF-8, other than those of the others */
    double *real;     /* any, infinite ones and NaN, too; comes back bit for bit, NaN as some NaN */
    int64_t *whole;
    char *text;  /* UTF-8 with a final 0 */
    size_t size; /* bytes at text, also for a longer one that may be loaded */
} clef_extra;
typedef struct clef_checkpoint {
    clef_module *module; /* NULL members are left out on saving and left alone on loading */
    clef_optimizer *optimizer;
    clef_schedule *schedule;
    clef_loader *loader;
    int64_t epoch;    /* the caller's own */
    double metric;    /* the caller's own */
    const char *note; /* free text of up to 1023 bytes, e.g. the command's options; on load: into note_out */
    char note_out[1024];
    clef_group *group; /* ranks that have the same parts and all call; NULL: this one alone */
    clef_averaged *averaged;
    clef_grad_scaler *scaler;
    const clef_extra *extra; /* n_extra of them; what else the file has is left alone */
    int n_extra;
} clef_checkpoint;
/* Saves these parts, the context's random state, and the names of its devices.  CLEF_INVALID for numbers that could not be
   loaded again, such as a learning rate that is NaN.  CLEF_STATE while the module of .averaged has averages, these or others
   (clef_averaged_use): leave it out to save them as the model.  With a group, rank 0 writes the file, and all ranks get its status and line.  An
   optimizer whose states are cut over ranks (.zero) saves them whole: every rank calls it, and rank 0 writes, with the group given or not.
       clef_checkpoint_save(ctx, "last.ckpt", &(clef_checkpoint){.module = net, .optimizer = opt, .epoch = 3});
       clef_extra own[] = {{.name = "temperature", .real = &temperature}, {.name = "games", .whole = &games}};
       clef_checkpoint_save(ctx, "last.ckpt", &(clef_checkpoint){.module = net, .extra = own, .n_extra = 2});  */
CLEF_API clef_status clef_checkpoint_save(clef_context *ctx, const char *path, const clef_checkpoint *what);
/* Fills the parts that are given, extra values too, which the file must hold, and epoch, metric and note_out.  The random state comes back
   together with an optimizer or a loader, not with a module alone.  Any misfit, any damage and any number that no run can
   have is an error and changes nothing; so it is while the module has averages (CLEF_STATE).  Made on
   another device, driver, number of compute units or of ranks (of parts, where the loader has them), or under another precision of products
   (clef_set_matmul_precision) or autocast: a warning in the log.
   With a group every rank reads the file, and none changes anything where one fails; it may be of any number of ranks, of which nothing in
   it depends: order and random numbers are those of whole batches. */
CLEF_API clef_status clef_checkpoint_load(clef_context *ctx, const char *path, clef_checkpoint *what);

#ifdef __cplusplus
}
#endif
#endif
