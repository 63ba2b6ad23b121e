/* data_internal.h — the parts of the data room that need no device: bytes, parsers, random numbers, augmentation;
   and the structs its files share.  Everything above the line "datasets" is plain host code, tested and fuzzed
   alone. */
#ifndef CLEF_DATA_INTERNAL_H
#define CLEF_DATA_INTERNAL_H
#include "clef/data.h"
#include "graph/graph.h"
#include "runtime/runtime.h"

/* ---- files as bytes (blob.c) ---- */
/* What is wrong with a file: "fact; remedy", to be read after the file's name. */
typedef struct clef__why {
    clef_status status;
    char line[256];
} clef__why;
typedef struct clef__blob {
    uint8_t *bytes; /* from clef__alloc, or NULL */
    size_t size;
} clef__blob;
void clef__blob_free(clef__blob *blob);
/* Reads a regular file whole.  As everything here that takes `why`, it fills that when it returns false. */
bool clef__blob_read(const char *path, clef__blob *blob, clef__why *why);
bool clef__blob_is_gzip(const clef__blob *blob);
/* Inflates a gzip file in place.  Fails when the result would have more than `limit` bytes; what it allocates
   stays in proportion to the bytes that really come out, at most about 1,032 for each byte that went in (deflate's
   bound). */
bool clef__blob_gunzip(clef__blob *blob, size_t limit, clef__why *why);
/* Inflates up to `want` first bytes into out; *got says how many. */
bool clef__gunzip_head(const clef__blob *blob, uint8_t *out, size_t want, size_t *got, clef__why *why);
enum { CLEF__BATCH_USUAL = 32 }; /* items of a batch where the options do not say */
/* ---- bytes that contexts share (store.c) ---- */
typedef struct clef__stored clef__stored;
enum { CLEF__STORE_KEY = 2048 };
/* The bytes under this key: those that are there already, else what `make` gives, which others who ask wait for.  They are not written to any
   more.  "": bytes that nobody else gets.  NULL where `make` fails, or without memory. */
clef__stored *clef__store(const char *key, bool (*make)(void *user, clef__blob *blob), void *user);
/* A copy of these bytes; NULL without memory. */
clef__stored *clef__store_copy(const void *bytes, size_t n);
/* Gives it back; NULL is allowed. */
void clef__store_leave(clef__stored *stored);
const clef__blob *clef__stored_blob(const clef__stored *stored);
/* The key of a file, CLEF__STORE_KEY bytes: "" if it is not there. */
void clef__store_key(char *key, const char *what, const char *path);
size_t clef__store_bytes(void); /* of all that is there, for tests */

/* Fills why; returns false. */
bool clef__wrong(clef__why *why, clef_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- parsers on bytes (idx.c, cifar.c) ---- */
enum { CLEF__IDX_RANK = 4 };
typedef struct clef__idx_file { /* unsigned bytes of up to four dimensions */
    int rank;
    int64_t dim[CLEF__IDX_RANK];
    size_t header; /* bytes before the first element */
    size_t numel;
} clef__idx_file;
/* Inflates if need be and checks that the file is exactly as long as its header says. */
bool clef__idx_unpack(clef__blob *blob, clef__idx_file *idx, clef__why *why);

enum { CLEF__CIFAR_PIXELS = 3 * 32 * 32, CLEF__CIFAR_RECORD = 1 + CLEF__CIFAR_PIXELS, CLEF__CIFAR_MAX = 100000 };
/* Inflates if need be and checks length and labels; `records` says how many there are (at least one). */
bool clef__cifar_unpack(clef__blob *blob, int64_t *records, clef__why *why);

/* ---- random numbers and order (order.c) ---- */
/* One block of Philox 4x32-10. */
void clef__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* What a block of the data room is for; part of its counter, so that streams never meet. */
typedef enum clef__draw {
    CLEF__DRAW_ORDER = 0x0da7a001,
    CLEF__DRAW_WINDOW = 0x0da7a002,
    CLEF__DRAW_AUGMENT = 0x0da7b000
} clef__draw;
/* The items of an epoch in their order: a Fisher-Yates shuffle of 0 … n-1 that depends on (seed, epoch, n). */
void clef__order_shuffled(int64_t *order, int64_t n, uint64_t seed, uint32_t epoch);

/* ---- augmentation (augment.c) ---- */
/* What happens to one item; a pure function of (options, seed, epoch, item). */
typedef struct clef__change {
    int dx, dy;   /* out(y, x) = in(y + dy, x + dx), zeros outside */
    bool flip;    /* then left-right */
    double angle; /* before all: degrees, counter-clockwise as seen with y down */
    float brightness, contrast;
    int cut_x0, cut_x1, cut_y0, cut_y1; /* half-open; empty when there is no cutout */
} clef__change;
bool clef__augments(const clef_augment *options);
/* NULL, or why these options cannot be used. */
const char *clef__augment_wrong(const clef_augment *options);
clef__change clef__augment_draw(const clef_augment *options, uint64_t seed, uint32_t epoch, int64_t item, int height, int width);
/* Changes image [channels, height, width] in place; scratch has as many floats. */
void clef__augment_apply(const clef__change *change, int channels, int height, int width, float *image, float *scratch);

/* ---- datasets ---- */
/* One tensor of each item. */
typedef struct clef__field {
    char *name;
    clef_shape shape; /* without the batch */
    clef_dtype dtype;
    bool target;
    size_t bytes;         /* of one item */
    clef__stored *stored; /* CLEF__ARRAYS: owned, shared among contexts */
    const uint8_t *data;  /* CLEF__ARRAYS: item i begins at byte i·bytes */
} clef__field;
typedef enum clef__dataset_kind {
    CLEF__BYTES,
    CLEF__ARRAYS,
    CLEF__CALLBACK,
    CLEF__FIELDS_CALLBACK,
    CLEF__DRAWN
} clef__dataset_kind;
/* As clef_fetch_fields_fn, of items that may be others in each epoch. */
typedef bool (*clef__draw_fn)(const void *user, int64_t i, uint32_t epoch, void *const *out);

struct clef_dataset {
    clef_context *ctx;
    clef_dataset *next; /* in the context's list */
    bool owner;         /* false for a view: fields, `memory` and `numbers` are another dataset's */
    clef__dataset_kind kind;
    const char *origin; /* "mnist", "arrays", … for error lines */
    clef__field *field; /* at least one of them an input; CLEF__BYTES, CLEF__CALLBACK: x, then y where there are classes */
    int n_fields, n_inputs;
    int image, label;            /* the first f32 input, which is augmented and normalised; the first target; -1: there is none */
    int64_t numel;               /* of an image */
    int channels, height, width; /* of images of rank 3 or 2; else 1, 1, numel */
    int64_t size, classes;
    const char *const *names; /* class names; NULL: numbers */
    char (*numbers)[8];       /* the numbers as text, owned */
    clef__stored *memory[2];  /* what the pointers below point into, owned, shared among contexts */
    void *drawn;              /* CLEF__DRAWN: what `draw` reads; owned */
    /* CLEF__BYTES: item i has its label at labels[i*label_stride] and pixels at pixels[i*pixel_stride]; × scale */
    const uint8_t *pixels, *labels;
    size_t pixel_stride, label_stride;
    float scale;
    /* CLEF__CALLBACK, CLEF__FIELDS_CALLBACK */
    clef_fetch_fn fetch;
    clef_fetch_fields_fn fetch_fields;
    void *user;
    clef__draw_fn draw; /* CLEF__DRAWN: of `drawn` */
};

/* A dataset in the context's list without fields; NULL after clef__fail. */
clef_dataset *clef__dataset_empty(clef_context *ctx, const char *origin, clef__dataset_kind kind, int64_t size, int64_t classes);
/* The same with f32 items x and, where this kind has classes, i64 classes y. */
clef_dataset *clef__dataset_new(clef_context *ctx, const char *origin, clef__dataset_kind kind, clef_shape item, int64_t size,
                                int64_t classes);
/* Adds a field with a copy of its data, where it has some; after clef__fail false, and the dataset is empty. */
bool clef__dataset_add(clef_dataset *data, const clef_field *field);
/* Are its elements classes: whole numbers, one for each item or, where the field says how many classes there are, of any shape? */
bool clef__is_class(const clef_field *field);
/* Element i of an array of whole numbers. */
int64_t clef__whole_at(clef_dtype dtype, const void *data, int64_t i);
/* Is it one of the two?  False after clef__fail. */
bool clef__is_split(clef_context *ctx, const char *origin, clef_split_name split);
/* Item i of an epoch (images after × scale) into out[field]; NULL: not wanted, which a fields callback never sees.  False: a callback
   refused or gave a class out of range. */
bool clef__dataset_fetch(const clef_dataset *data, int64_t i, uint32_t epoch, void *const *out);

/* dir, or $CLEF_DATA/name when dir is NULL, as a new string; NULL after clef__fail. */
char *clef__data_folder(clef_context *ctx, const char *dir, const char *name);
/* folder/stem or folder/stem.gz, the one that exists, as a new string; NULL if neither does. */
char *clef__data_find(const char *folder, const char *stem);

/* ---- batches that ranks share (agree.c) ---- */
enum { CLEF__BATCHES_NUMBERS = 9 };
typedef struct clef__batches {
    /* items, items of a batch, shuffle, drop_last, seed, parts, hash of shares, shares_auto, rebalance_every */
    int64_t number[CLEF__BATCHES_NUMBERS];
} clef__batches;
/* Every rank calls it; CLEF_GROUP with the first difference on all of them. */
clef_status clef__agree_on_batches(clef_context *ctx, clef_group *group, const clef__batches *own);

/* ---- who gets how much of a batch (shares.c, balance.c) ---- */
/* What one rank did in some steps: items, and picoseconds in which it computed; below 0: they say nothing, measure again. */
typedef struct clef__speed {
    int64_t items, picoseconds;
} clef__speed;
/* Whole numbers and their comparisons alone, so that ranks on any machines come to the same. */
typedef struct clef__balance {
    int ranks;
    int64_t size;        /* items of a full batch */
    int64_t *items;      /* that each rank has of them */
    int64_t *cost;       /* picoseconds per item, smoothed; 0: not known */
    int64_t *next;       /* what each is to have, where that is something else */
    int changes, stands; /* of shares in this search; measurements in a row that changed nothing */
    bool fixed;
} clef__balance;
bool clef__balance_open(clef__balance *b, int ranks, int64_t size);
void clef__balance_close(clef__balance *b);
/* Learns from what each rank did.  True: items should become next. */
bool clef__balance_learn(clef__balance *b, const clef__speed *of);
/* The shares with which the slowest rank is done first, in steps of a sixteenth of an equal share. */
void clef__balance_divide(const int64_t *cost, int ranks, int64_t size, int64_t *items);

typedef struct clef__shares {
    clef_group *group; /* NULL: one rank has all */
    int parts;         /* of a batch, whose number is to be told; 0: none */
    int64_t *sum;      /* shares of ranks 0 to r; NULL: equal ones */
    bool automatic;
    int64_t every; /* batches from one measurement to the next once they are fixed; 0: none */
    clef__balance balance;
    clef__speed *speed; /* of each rank, at the end of a measurement */
    /* where a measurement is */
    bool begun, measuring, one_epoch; /* one_epoch: none goes on over the end of an epoch */
    uint64_t number, built;           /* of the group's next collective operation; of plans and kernels made so far */
    int64_t steps, items, again;
} clef__shares;
/* NULL, or what is wrong with them. */
const char *clef__shares_wrong(const clef_loader_options *o);
/* Parts that the ranks can have equally many of, and combine in one tree. */
bool clef__parts_fit(const clef_loader_options *o);
void clef__batches_of(clef__batches *batches, int64_t items, const clef_loader_options *o);
bool clef__shares_open(clef__shares *s, const clef_loader_options *o); /* false without memory */
void clef__shares_plan(clef__shares *s, int64_t size, int64_t batches);
void clef__shares_close(clef__shares *s);
clef__share clef__share_in(const clef__shares *s, int64_t all); /* this rank's part of a batch of `all` items */
clef__share clef__share_of_rank(const clef__shares *s, int64_t all, int rank);
bool clef__shares_fixed(const clef__shares *s);
/* Between two batches.  *changed: other shares are to be taken over. */
clef_status clef__shares_measure(clef__shares *s, bool *changed);
void clef__shares_count(clef__shares *s, int64_t items); /* a batch is handed out */
void clef__shares_end_epoch(clef__shares *s);
/* Other shares are given; CLEF_INVALID where they cannot be.  They are taken over next. */
bool clef__loader_measures(const clef_loader *loader); /* shares_auto, with several ranks */
clef_status clef__shares_wanted(clef__shares *s, clef_context *ctx, const int64_t *shares, int n);
void clef__shares_change(clef__shares *s);

/* A loader in its context's list.  Loaders are closed with the context, before the datasets that they read. */
typedef struct clef__loader_link {
    struct clef__loader_link *next;
    clef_loader *loader;
    void (*close)(clef_loader *loader); /* forgets the link */
} clef__loader_link;
void clef__loader_register(clef_context *ctx, clef__loader_link *link);
void clef__loader_forget(clef_context *ctx, const clef__loader_link *link);
#endif
