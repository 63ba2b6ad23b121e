/* Kernels that allow smaller work-groups than their device does, as registers may dictate: the driver's answer is a lie told here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "support/device.h"
#include "runtime/runtime_internal.h"
#include <dlfcn.h>

static size_t allowed;

cl_int clGetKernelWorkGroupInfo(cl_kernel k, cl_device_id d, cl_kernel_work_group_info what, size_t n, void *v, size_t *needed) {
    if (what == CL_KERNEL_WORK_GROUP_SIZE && v && allowed) return memcpy(v, &allowed, sizeof allowed), CL_SUCCESS;
    return ((__typeof__(&clGetKernelWorkGroupInfo))dlsym(RTLD_NEXT, "clGetKernelWorkGroupInfo"))(k, d, what, n, v, needed);
}

/* Launches of one, two and three dimensions. */
static double program(void) {
    clef_context *ctx = open_as_gpu();
    clef_tensor *x = noise_tensor(ctx, CLEF_SHAPE(3, 40, 70), 1), *y = noise_tensor(ctx, CLEF_SHAPE(3, 70, 50), 2);
    double value = clef_item(clef_sum(clef_relu(clef_matmul(x, y)), NULL, 0, false));
    close_clean(ctx);
    return value;
}

Test(groups, shrink_to_what_a_kernel_allows) {
    double wanted = program();
    for (allowed = 1; allowed <= 16; allowed *= 4) cr_assert_eq(program(), wanted, "groups of at most %zu", allowed);
}
