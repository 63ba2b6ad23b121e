/* copies.h — blocks in stages (tile.h): elements on their way from global to local memory, which no register holds.

   COPY(to, from, has, aligned) copies a run, RUN elements RAW of 16 bytes, to local memory, or zeros; `to` is a multiple of 16 bytes,
   and `from` where it is aligned.  END_COPIES(): those since the last one are a set.  AWAIT_COPIES(n): all sets of this work-item but the
   last n have arrived; others see them after a barrier.  With PTX copies go on by themselves, in single elements where a run is not
   aligned, but for half types: cp.async of NVIDIA's PTX ISA 7.0, which devices of compute capability 8.0 and later have.  Else they are done at
   once. */
#ifdef PTX
#define DEFINE_COPY(name, how, bytes)                                                            \
    static void name(__local RAW *to, __global const RAW *from, bool has) {                      \
        __asm__ volatile("cp.async." how ".shared.global [%0], [%1], " #bytes ", %2;"            \
                         :                                                                       \
                         : "r"((uint)(size_t)to), "l"(from), "r"(has ? bytes : 0)                \
                         : "memory");                                                            \
    }
DEFINE_COPY(copy_run, "cg", 16)
#if RUN == 4
DEFINE_COPY(copy_single, "ca", 4)
#endif
#define END_COPIES() __asm__ volatile("cp.async.commit_group;" : : : "memory");
#define AWAIT_COPIES(n) __asm__ volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
#else
static void copy_run(__local RAW *to, __global const RAW *from, bool has) {
    *(__local VEC(RAW, RUN) *)to = has ? *(__global const VEC(RAW, RUN) *)from : (VEC(RAW, RUN))(0);
}
#if RUN == 4
static void copy_single(__local RAW *to, __global const RAW *from, bool has) { *to = has ? *from : 0; }
#endif
#define END_COPIES()
#define AWAIT_COPIES(n)
#endif
#if RUN == 4
static void copy_singles(__local RAW *to, __global const RAW *from, bool has) {
    copy_single(to, from, has);
    copy_single(to + 1, from + 1, has);
    copy_single(to + 2, from + 2, has);
    copy_single(to + 3, from + 3, has);
}
#else
static void copy_singles(__local RAW *to, __global const RAW *from, bool has) {
    *(__local VEC(RAW, RUN) *)to = has ? CAT(VLOAD_, RUN)(from) : (VEC(RAW, RUN))(0);
}
#endif
#define COPY(to, from, has, aligned)                                                             \
    if (aligned) copy_run(to, from, has);                                                        \
    else copy_singles(to, from, has);
