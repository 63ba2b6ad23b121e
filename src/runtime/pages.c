/* pages.c — large buffers of a device that computes in the host's own memory, in large pages where the system has them.

   A walk down the columns of a matrix touches another page of 4 KiB with every row, and finding thousands of these costs more than
   reading them.  Systems give pages of 2 MiB to whoever asks (madvise), which drivers do not; so the memory is ours, used by
   the driver as it lies (CL_MEM_USE_HOST_PTR), and goes back when the driver lets go of the last reference to it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MADV_HUGEPAGE */
#endif
#include "runtime/runtime_internal.h"
#include <sys/mman.h>

enum { LARGE_PAGE = CLEF__LARGE_PAGE };

#if defined(MADV_HUGEPAGE) && defined(MAP_ANONYMOUS)
/* Stands behind a buffer's last page, in the same mapping. */
typedef struct mapping {
    void *begin;
    size_t bytes;
} mapping;

static void CL_CALLBACK let_go(cl_mem memory, void *user) {
    mapping m = *(mapping *)user;
    (void)memory;
    munmap(m.begin, m.bytes);
}

cl_mem clef__pages_buffer(clef__device *device, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size_t whole = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE, bytes = LARGE_PAGE + whole + sizeof(mapping);
    unsigned char *begin = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return NULL;
    unsigned char *first = begin + (LARGE_PAGE - (uintptr_t)begin % LARGE_PAGE) % LARGE_PAGE;
    mapping *behind = (mapping *)(void *)(first + whole);
    cl_int code = CL_SUCCESS;
    madvise(first, whole, MADV_HUGEPAGE); /* the rest in a large one, too; where it is refused, pages are small */
    cl_mem memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, first, &code);
    *behind = (mapping){begin, bytes};
    if (memory && clSetMemObjectDestructorCallback(memory, let_go, behind) == CL_SUCCESS) return memory;
    if (memory) clReleaseMemObject(memory);
    munmap(begin, bytes);
    return NULL;
}
#else
cl_mem clef__pages_buffer(clef__device *device, size_t size) {
    (void)device;
    (void)size;
    return NULL;
}
#endif
