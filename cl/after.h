/* after.h — what a kernel's store may do with its results (epilogue.h), as bits in their order; the host reads them too. */
#define AFTER_SCALE 1
#define AFTER_ADD 2
#define AFTER_GATE 4
#define AFTER_RELU 8
#define AFTER_LEAK 16
