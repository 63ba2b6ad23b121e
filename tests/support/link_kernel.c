/* link_kernel.c — `ld` for pocl, which has each kernel linked by its compiler as if it were a program's library.  To read libm, libc and
   libgcc for it takes two thirds of the time.  A kernel that uses nothing but the C library's memory functions, which every process has,
   is linked without them; everything else as it was asked for. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_in_every_process(const char *name) {
    static const char *const all[] = {"", "memcpy", "memmove", "memset", "memcmp"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i]) == 0) return 1;
    return 0;
}

/* Are all undefined symbols of this object there anyway?  Not where that cannot be told. */
static int symbols_are_there(const unsigned char *object, size_t size) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)object;
    if (size < sizeof *head || memcmp(object, ELFMAG, SELFMAG) != 0 || object[EI_CLASS] != ELFCLASS64) return 0;
    if (head->e_shoff + head->e_shnum * sizeof(Elf64_Shdr) > size) return 0;
    const Elf64_Shdr *section = (const Elf64_Shdr *)(object + head->e_shoff);
    for (int s = 0; s < head->e_shnum; s++) {
        if (section[s].sh_type != SHT_SYMTAB || section[s].sh_link >= head->e_shnum) continue;
        const Elf64_Sym *symbol = (const Elf64_Sym *)(object + section[s].sh_offset);
        const char *names = (const char *)object + section[section[s].sh_link].sh_offset;
        for (size_t i = 0; i < section[s].sh_size / sizeof *symbol; i++)
            if (symbol[i].st_shndx == SHN_UNDEF && !is_in_every_process(names + symbol[i].st_name)) return 0;
        return 1;
    }
    return 0;
}

static int needs_nothing(const char *path) {
    struct stat info;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) return 0;
    const unsigned char *object = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    return object != MAP_FAILED && symbols_are_there(object, (size_t)info.st_size);
}

/* pocl names the object after the library. */
static int is_kernel(const char *arg) {
    size_t n = strlen(arg);
    return n > 5 && strcmp(arg + n - 5, ".so.o") == 0;
}

int main(int argc, char **argv) {
    int alone = 0, n = 1;
    for (int i = 1; i < argc; i++) alone = alone || (is_kernel(argv[i]) && needs_nothing(argv[i]));
    for (int i = 1; i < argc; i++)
        if (!alone || strncmp(argv[i], "-l", 2) != 0) argv[n++] = argv[i];
    argv[n] = NULL;
    execv(CLEF_TEST_LINKER, argv);
    perror(CLEF_TEST_LINKER);
    return 127;
}
