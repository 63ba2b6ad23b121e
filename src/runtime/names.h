/* names.h — texts of C as parts of one program, behind common.h (names.c). */
#ifndef CLEF_RUNTIME_NAMES_H
#define CLEF_RUNTIME_NAMES_H
#include "runtime/text.h"

struct clef__word {
    const char *at;
    size_t n;
};
typedef struct clef__words {
    struct clef__word *word;
    size_t n, slots; /* slots: a power of two */
    bool failed;
} clef__words;

/* The words of common.h, those that it defines, and those of them that mean nothing behind it. */
typedef struct clef__shared {
    clef__words words, macros, undefined;
} clef__shared;
bool clef__shared_open(clef__shared *shared, const char *common); /* `common` has to stay; false without host memory */
void clef__shared_close(clef__shared *shared);

/* Those options that all parts of a program have to have: of which common.h makes something (-DCLEF_…), and what is no plain definition. */
void clef__shared_options(clef__text *shared, const char *options);

typedef struct clef__part {
    const char *options, *text, *file; /* what is compiled is text, then file */
    int number;                        /* behind its names, and its kernels', there is _number */
} clef__part;
/* Adds it.  False, and what was added is of no use, if it would define anew what common.h does, or without host memory. */
bool clef__part_put(clef__text *to, const clef__shared *shared, const clef__part *part);
#endif
