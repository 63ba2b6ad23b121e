/* clef/io.h — files: safetensors, checkpoints, .npy.  Every write is atomic: the old file or the new one. */
#ifndef CLEF_IO_H
#define CLEF_IO_H
#include "optim.h"
#include "data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters and buffers of a module as safetensors, names as in clef_module_tensor. */
CLEF_API clef_status clef_save(clef_module *module, const char *path);
/* Fills a module of the same structure; a missing, surplus or misshaped tensor is an error and changes nothing. */
CLEF_API clef_status clef_load(clef_module *module, const char *path);

/* Any named tensors.  metadata: pairs of strings, NULL-terminated, or NULL. */
CLEF_API clef_status clef_safetensors_write(clef_context *ctx, const char *path, const clef_named_tensor *tensors, int n,
                                            const char *const *metadata);
typedef struct clef_safetensors clef_safetensors; /* an open, fully checked file */
CLEF_API clef_safetensors *clef_safetensors_open(clef_context *ctx, const char *path);
CLEF_API void clef_safetensors_close(clef_safetensors *file);
CLEF_API int clef_safetensors_count(const clef_safetensors *file);
CLEF_API const char *clef_safetensors_name(const clef_safetensors *file, int i);
CLEF_API bool clef_safetensors_find(const clef_safetensors *file, const char *name, int *i);
CLEF_API clef_shape clef_safetensors_shape(const clef_safetensors *file, int i);
CLEF_API clef_dtype clef_safetensors_dtype(const clef_safetensors *file, int i);
CLEF_API clef_tensor *clef_safetensors_tensor(clef_safetensors *file, int i);
CLEF_API const char *clef_safetensors_metadata(const clef_safetensors *file, const char *key); /* NULL if none */

/* NumPy's .npy, version 1.0: f32 f16 f64 i32 i64 u8 bool; Fortran order and big-endian are read too. */
CLEF_API clef_status clef_npy_write(clef_tensor *t, const char *path);
CLEF_API clef_tensor *clef_npy_read(clef_context *ctx, const char *path);

/* ---- checkpoints: everything that exact resuming needs; NULL members are left out ---- */
typedef struct clef_checkpoint {
    clef_module *module;
    clef_optimizer *optimizer;
    clef_schedule *schedule;
    clef_loader *loader;
    int64_t epoch;                /* the caller's own */
    double metric;                /* the caller's own */
    const char *note;             /* free text, e.g. the command's options; on load: into note_out */
    char note_out[1024];
} clef_checkpoint;
CLEF_API clef_status clef_checkpoint_save(clef_context *ctx, const char *path, const clef_checkpoint *what);
CLEF_API clef_status clef_checkpoint_load(clef_context *ctx, const char *path, clef_checkpoint *what);

#ifdef __cplusplus
}
#endif
#endif
