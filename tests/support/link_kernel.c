/* link_kernel.c — `ld` for pocl, which has each kernel linked by its compiler as if it were a program's library.  To read libm, libc and
   libgcc_s for it takes half of the time, and the process that loads it has them.  Everything else is linked as it was asked for. */
#include <string.h>
#include <unistd.h>

/* pocl calls the object after the library. */
static int is_kernel(const char *arg) {
    size_t n = strlen(arg);
    return n > 5 && strcmp(arg + n - 5, ".so.o") == 0;
}

static int is_loaded_anyway(const char *arg) {
    return strcmp(arg, "-lm") == 0 || strcmp(arg, "-lc") == 0 || strcmp(arg, "-lgcc_s") == 0;
}

int main(int argc, char **argv) {
    int kernel = 0, n = 1;
    for (int i = 1; i < argc; i++) kernel = kernel || is_kernel(argv[i]);
    for (int i = 1; i < argc; i++)
        if (!kernel || !is_loaded_anyway(argv[i])) argv[n++] = argv[i];
    argv[n] = NULL;
    execv(CLEF_TEST_LINKER, argv);
    return 127;
}
