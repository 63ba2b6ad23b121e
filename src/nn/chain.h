/* chain.h — a chain of units of work cut into runs, one for each of some devices in their order: plain numbers, no context.

   A run's time: that of its units, and of the values that its device receives from others; with gradients that go back, of those too.
   A run's memory: the bytes of its units and of the value that enters it, and the most that one of its units needs while it works. */
#ifndef CLEF_NN_CHAIN_H
#define CLEF_NN_CHAIN_H
#include <stdbool.h>

typedef struct clef__chain {
    int units, devices;
    const double *seconds; /* of unit u on device d: [u * devices + d] */
    const double *bytes;   /* of unit u, wherever it lies: they stay */
    const double *work;    /* of unit u while it works: of a run the largest counts */
    const double *border;  /* bytes of the value that enters unit u */
    const double *limit;   /* bytes that device d has */
    int home;              /* the device on which the first unit's input lies; -1: none of these */
    bool both_ways;        /* gradients go back over each border that lies between two units */
    double transfer;       /* bytes a second over a border */
    int parts; /* of a batch, which keep several devices busy at the same time; 0: so many that the slowest device counts */
} clef__chain;

/* What units begin … end - 1 take on a device. */
double clef__run_seconds(const clef__chain *chain, int device, int begin, int end);
double clef__run_bytes(const clef__chain *chain, int begin, int end);
/* Seconds of a batch where the devices take `sum` together and the slowest `most`: the first part passes through all of them, and then
   the slowest gives one part after the other. */
double clef__chain_seconds(const clef__chain *chain, double sum, double most);

typedef enum clef__cut { CLEF__CUT, CLEF__NONE_FITS, CLEF__NO_HOST_MEMORY } clef__cut;
/* The cut that takes least, of those in which each device has room: device d gets the units end[d - 1] … end[d] - 1, maybe none. */
clef__cut clef__chain_cut(const clef__chain *chain, int *end);
#endif
