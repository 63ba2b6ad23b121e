/* clef/data.h — datasets, loaders, augmentation.

   A function that makes a dataset or a loader returns NULL on failure and leaves the reason in
   clef_error(ctx); given NULL, every function here does nothing and returns NULL, 0, false or CLEF_INVALID.
   Datasets and loaders live until their context closes. */
#ifndef CLEF_DATA_H
#define CLEF_DATA_H
#include "group.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Items have fields, each an input or a target.  Most have x (f32, images as [c,h,w] with pixels in [0,1]) and y (an i64 class). */
typedef struct clef_dataset clef_dataset; /* owned by its context */
typedef enum clef_split_name { CLEF_TRAIN, CLEF_TEST } clef_split_name;

/* MNIST's IDX files under their usual names, plain or gzip, in directory dir (NULL: $CLEF_DATA/mnist): 60,000
   to train, 10,000 to test, [1,28,28], ten classes.  CLEF_IO if they are not there.
   (LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.) */
CLEF_API clef_dataset *clef_mnist(clef_context *ctx, const char *dir, clef_split_name split);
/* CIFAR-10 binary files, plain or gzip, in dir (NULL: $CLEF_DATA/cifar10); those of the five training files
   that exist.  (A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.) */
CLEF_API clef_dataset *clef_cifar10(clef_context *ctx, const char *dir, clef_split_name split);
/* The embedded UCI handwritten digits, 8×8: 1,437 to train, 360 to test, stratified.
   (E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998; CC BY 4.0.) */
CLEF_API clef_dataset *clef_digits(clef_context *ctx, clef_split_name split);
/* Any pair of IDX files of unsigned bytes, plain or gzip: images [n,w], [n,h,w] or [n,c,h,w], labels [n].
   A file that is not exactly as long as its header says is refused (CLEF_FORMAT). */
CLEF_API clef_dataset *clef_idx(clef_context *ctx, const char *images, const char *labels);
/* Arrays in memory, copied: x n × numel(item) floats; y n classes, or NULL.  There are max(y)+1 classes. */
CLEF_API clef_dataset *clef_dataset_arrays(clef_context *ctx, const float *x, clef_shape item, const int64_t *y, int64_t n);
/* x and y both float arrays (regression); y_item is the shape of one target. */
CLEF_API clef_dataset *clef_dataset_pairs(clef_context *ctx, const float *x, clef_shape item, const float *y, clef_shape y_item,
                                          int64_t n);
/* fetch fills x (numel(item) floats) and *y for item i; called from several threads; false is an error.  With
   classes = 0 there are no targets and *y is ignored; otherwise *y must be below classes.  user must live as
   long as the loaders that read it. */
typedef bool (*clef_fetch_fn)(void *user, int64_t i, float *x, int64_t *y);
CLEF_API clef_dataset *clef_dataset_callback(clef_context *ctx, clef_shape item, int64_t n, int64_t classes, clef_fetch_fn fetch,
                                             void *user);
/* The most fields of a dataset. */
enum { CLEF_FIELDS_MOST = 64 };
/* One tensor of each item, an input of the module or a target of the loss.  Host memory of bool is a byte, 0 or 1, for each
   element; of f16 and bf16 two bytes. */
typedef struct clef_field {
    const char *name; /* for error lines, copied; NULL: "field 0", … */
    clef_shape shape; /* of one item, without the batch, of rank < 8 */
    clef_dtype dtype;
    const void *data; /* n × numel(shape) elements, copied; not looked at where a callback provides them */
    bool target;
    int64_t classes; /* of a target in i64, i32 or u8: its elements are classes below this.  0: as high as data goes, if of shape
                        CLEF_SCALAR, else numbers that are no classes */
} clef_field;
/* In a target of classes with a shape: here no answer is wanted. */
enum { CLEF_NO_TARGET = -100 };
/* Items with any inputs and targets: sequences of whole numbers, several inputs, targets of any shape and dtype.  Batches have the
   inputs and the targets in the order of their fields.  The first target's classes are the dataset's: a target [t] with classes is a sequence
   of them, which clef_fit and clef_evaluate score with outputs [b,t,classes], and which CLEF_NO_TARGET leaves out.  The first f32 input is
   what a loader augments and normalises.  CLEF_INVALID for a field that cannot be, or without an input; CLEF_MEMORY.
       clef_field fields[] = {{"words", CLEF_SHAPE(20), CLEF_I64, words}, {"label", CLEF_SCALAR, CLEF_U8, labels, .target = true}};
       clef_dataset *data = clef_dataset_fields(ctx, fields, 2, n);  */
CLEF_API clef_dataset *clef_dataset_fields(clef_context *ctx, const clef_field *fields, int n_fields, int64_t n);
/* fetch fills out[f], numel(shape) elements of its dtype, for each field f of item i; called from several threads; false is an
   error.  Classes of 0 are none; a first target with classes must be below them. */
typedef bool (*clef_fetch_fields_fn)(void *user, int64_t i, void *const *out);
/* The same with items from a callback.  user must live as long as the loaders that read it. */
CLEF_API clef_dataset *clef_dataset_fields_callback(clef_context *ctx, const clef_field *fields, int n_fields, int64_t n,
                                                    clef_fetch_fields_fn fetch, void *user);
/* Number of fields; 0 for NULL. */
CLEF_API int clef_dataset_field_count(const clef_dataset *data);
/* Field i, with data NULL; its name lives as long as the dataset.  All zero if there is none. */
CLEF_API clef_field clef_dataset_field(const clef_dataset *data, int i);
/* The first n items (a view, nothing is copied); all of them when there are not so many.  CLEF_INVALID if n <
   0. */
CLEF_API clef_dataset *clef_dataset_take(clef_dataset *data, int64_t n);
/* Number of items. */
CLEF_API int64_t clef_dataset_size(const clef_dataset *data);
/* Shape of one item's x (its first input), without the batch: [c,h,w] for images; a scalar's for NULL. */
CLEF_API clef_shape clef_dataset_item(const clef_dataset *data);
/* Number of classes; 0 where the targets are not classes. */
CLEF_API int64_t clef_dataset_classes(const clef_dataset *data);
/* The context that owns it. */
CLEF_API clef_context *clef_dataset_context(const clef_dataset *data);
/* Name of class c: "7", "cat", …; "" out of range.  Lives as long as the dataset. */
CLEF_API const char *clef_dataset_class_name(const clef_dataset *data, int64_t c);
/* Copies item i, before augmentation and normalisation, into x (numel(item) floats) and *y (may be NULL; 0
   where there are no classes).  CLEF_INVALID if there is no item i, CLEF_IO if a callback refuses, CLEF_DTYPE if an item is
   more than an f32 x and a y. */
CLEF_API clef_status clef_dataset_get(clef_dataset *data, int64_t i, float *x, int64_t *y);
/* Copies all fields of item i, before augmentation and normalisation, field f into out[f]. */
CLEF_API clef_status clef_dataset_get_fields(clef_dataset *data, int64_t i, void *const *out);

/* Random changes of the first f32 input, an image ([c,h,w] or [h,w], before normalisation), in this order: rotation, crop and shift,
   flip, brightness, contrast, cutout.  What comes in from outside is 0.  What happens to an item depends on
   the loader's seed, the epoch and the item's number only, and each kind is drawn apart from the others. */
typedef struct clef_augment {
    int crop_padding;            /* random crop of the original size after padding by so many zeros */
    int shift;                   /* random shift by up to so many pixels each way */
    bool flip;                   /* left-right with probability 1/2 */
    double rotation;             /* up to so many degrees each way, bilinear */
    double brightness, contrast; /* factor 1 ± so much, 0 to 1; the result is held to [0,1] */
    int cutout;                  /* side of a square of zeros, centred anywhere in the image */
} clef_augment;

typedef struct clef_loader_options {
    int64_t batch; /* 0: 32.  Of all ranks of `group` together */
    bool shuffle, drop_last;
    int workers;             /* threads; 0: 1.  Batches are the same for any number */
    int prefetch;            /* batches ahead; 0: 2 */
    int device;              /* of the context, where batches lie */
    uint64_t seed;           /* of order and augmentation */
    const float *mean, *std; /* per channel ([c,h,w]; else one): x = (x - mean) / std; NULL: 0, 1.  Copied */
    clef_augment augment;
    clef_group *group;     /* ranks that share every batch; NULL: this one alone */
    const int64_t *shares; /* one for each rank: how much of every batch it gets, beside the others; NULL: equally much.  Copied */
    int parts; /* of clef_backward_parts, into which every batch is cut: a power of two that the number of ranks divides; 0: none.  Without
                              shares */
    bool shares_auto;        /* shares by the measured speed of each rank; without shares and parts */
    int64_t rebalance_every; /* with shares_auto: measure again after so many batches, as a device may become slower; 0: never */
} clef_loader_options;
typedef struct clef_loader clef_loader; /* owned by its context */
/* Batches of a dataset, in order or shuffled.  Options NULL: all defaults; out of range: CLEF_INVALID.  The
   order of an epoch depends on (seed, epoch, size) only: a Fisher-Yates shuffle with Philox 4x32-10.  Threads
   start with the first clef_next.
   With a group, every rank opens a loader with equal options of the same data (CLEF_GROUP names the first difference).  Batches are those of
   one rank, and each rank gets its part of every batch: items in one run, equally many or one more on the first ranks.  With shares sᵣ, rank
   r's items end at item round(b·(s₀ + … + sᵣ) / Σ s) of b, say 3 and 1 for a device three times as fast as the other.  A rank may get none:
   a batch of size 0, of which the mean is 0.  How much a rank counts in averaged gradients, and what clef_dropout does with an item, follow
   from its part.
   With `parts` = P, it is the batch of all ranks that is cut, into P parts of equally many items or one more in the first; the batch of a rank
   is the P/n consecutive parts that are its own.  So what is in a part does not depend on the number n of ranks.
   With shares_auto, ranks begin with equal parts and measure in the first steps how long each computes, apart from what it waits for others:
   four steps at a time, of those in which an optimizer with this group averages gradients and nothing is compiled, the shortest one counting.
   After each measurement they meet, and take the shares with which the slowest is done first, in steps of a sixteenth of an equal part.  Twice without a change,
   or after eight changes, the shares are fixed.  A device that would only hold up the others gets none.  clef_loader_shares tells them;
   checkpoints save them.  They depend on the clock, so two runs differ in the last bits; with parts, or with shares that are given, they do
   not.
       clef_loader *loader = clef_loader_open(clef_digits(ctx, CLEF_TRAIN),
                                              &(clef_loader_options){.batch = 64, .shuffle = true});  */
CLEF_API clef_loader *clef_loader_open(clef_dataset *data, const clef_loader_options *options);
/* Stops the threads and frees the loader, at any time; optional, as clef_close does it too. */
CLEF_API void clef_loader_close(clef_loader *loader);

typedef struct clef_batch {
    clef_tensor *x, *y;  /* the first input, the first target (NULL without), say [b,…] f32 and [b] i64 classes */
    int64_t size, index; /* items in this batch, of this rank, and the batch's number in the epoch */
    clef_tensor *const *inputs,
        *const *targets; /* all of them, temporaries [b,…]; the arrays are the loader's, until its next batch */
    int n_inputs, n_targets;
    int64_t first, all; /* items [first, first + size) of the `all` that ranks share; 0 and size on one rank */
    int parts;          /* clef_loader_options.parts */
} clef_batch;
/* Ends the step (clef_end_step) and uploads the next batch, as temporaries.  False at the end of an epoch
   (the next call starts another), and when the context holds an error; one of fetching (CLEF_IO) leaves the
   loader where it is, to try that batch again.
       for (clef_batch b; clef_next(loader, &b);) …  */
CLEF_API bool clef_next(clef_loader *loader, clef_batch *batch);
/* Batches per epoch: ⌈items/batch⌉, or ⌊items/batch⌋ with drop_last. */
CLEF_API int64_t clef_loader_batches(const clef_loader *loader);
/* The dataset it reads. */
CLEF_API clef_dataset *clef_loader_dataset(const clef_loader *loader);
/* The ranks that share its batches; NULL: none, or a group of one. */
CLEF_API clef_group *clef_loader_group(const clef_loader *loader);
/* Into how many parts it cuts every batch (clef_loader_options.parts); 0: none. */
CLEF_API int clef_loader_parts(const clef_loader *loader);

/* Items of a full batch that each rank gets, into shares (of at most `most` ranks); returns the number of ranks, 0 without a group.
       int64_t items[2]; clef_loader_shares(loader, items, 2);   {48, 16} */
CLEF_API int clef_loader_shares(const clef_loader *loader, int64_t *shares, int most);
/* Do they stay as they are?  False while shares_auto looks for them. */
CLEF_API bool clef_loader_shares_fixed(const clef_loader *loader);
/* Goes on with these shares, whole numbers from 0 for each rank, as those of clef_loader_shares or of a checkpoint; with shares_auto they are
   fixed.  All ranks give the same ones, between the same batches.  CLEF_INVALID for another number of ranks, below 0 or above 1000000, if
   all are 0, and with parts. */
CLEF_API clef_status clef_loader_set_shares(clef_loader *loader, const int64_t *shares, int n);

/* A place in the sequence of batches: `batch` batches of epoch `epoch` (from 0) were handed out. */
typedef struct clef_loader_state {
    int64_t epoch, batch;
    uint64_t seed;
} clef_loader_state;
/* Where the loader stands, for checkpoints; zeros for NULL. */
CLEF_API clef_loader_state clef_loader_get(const clef_loader *loader);
/* Continues exactly there, with any number of workers; CLEF_INVALID for a place that the loader does not
   have. */
CLEF_API clef_status clef_loader_set(clef_loader *loader, clef_loader_state state);

#ifdef __cplusplus
}
#endif
#endif
