/* probe_compile.c — clef-probe compile: compiles kernels in the place of another process, the last one first, where the driver keeps what it
   compiled (helper.c writes the list).  It becomes a process of its own, which ends with its standard input, and nobody hears of it. */
#include "runtime/probe_list.h"
#include "runtime/probe_program.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIST = 3, MOST_PROGRAMS = 4096, MOST_KERNELS = 16384, MOST_BYTES = 65536, NAME = 256 };
enum { MEMORY = 256 << 20, PATIENCE = 120, PAUSE = 5000000 }; /* seconds, nanoseconds */

/* "program BYTES BYTES\n", of the source and of the options, which follow; built when its first kernel is wanted. */
typedef struct listed {
    const char *text, *options;
    size_t text_bytes, option_bytes;
    cl_program built;
    bool tried;
} listed;

typedef struct compiling {
    cl_context context;
    cl_device_id id;
    cl_command_queue queue;
    cl_mem memory;
    listed program[MOST_PROGRAMS];
    /* Lines "kernel PROGRAM NAME SIZE SIZE SIZE", of a work-group; its arguments' are behind each. */
    const char *kernel[MOST_KERNELS];
    size_t n_programs, n_kernels;
} compiling;

/* ---- the list ---- */

/* Has all been written? */
static bool is_whole(off_t bytes) {
    char end[sizeof CLEF_PROBE_LIST_END] = "";
    size_t n = strlen(CLEF_PROBE_LIST_END);
    return bytes >= (off_t)n && pread(LIST, end, n, bytes - (off_t)n) == (ssize_t)n && strcmp(end, CLEF_PROBE_LIST_END) == 0;
}

/* All of the file, as soon as it is there, with a zero byte behind it. */
static const char *read_list(void) {
    struct stat file;
    clef_probe_require(fstat(LIST, &file) == 0);
    for (; !is_whole(file.st_size); clef_probe_require(fstat(LIST, &file) == 0))
        nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    char *text = malloc((size_t)file.st_size + 1);
    clef_probe_require(text);
    for (ssize_t at = 0, got; at < file.st_size; at += got)
        clef_probe_require((got = pread(LIST, text + at, (size_t)(file.st_size - at), at)) > 0);
    text[file.st_size] = 0;
    return text;
}

static bool begins(const char *line, const char *word) { return strncmp(line, word, strlen(word)) == 0; }
static const char *next_line(const char *line) { return strchr(line, '\n') + 1; }
static bool is_argument(const char *line) { return begins(line, "memory\n") || begins(line, "number "); }

static size_t next_number(const char **at) {
    char *end;
    size_t number = strtoull(*at, &end, 10);
    *at = end;
    return number;
}

static const char *take_program(compiling *c, const char *line) {
    listed *p = &c->program[c->n_programs++];
    const char *at = line + strlen("program ");
    p->text_bytes = next_number(&at);
    p->option_bytes = next_number(&at);
    p->text = at + 1;
    p->options = p->text + p->text_bytes;
    return p->options + p->option_bytes;
}

static void take_list(compiling *c, const char *at) {
    while (begins(at, "program ")) {
        clef_probe_require(c->n_programs < MOST_PROGRAMS);
        at = take_program(c, at);
    }
    for (; begins(at, "kernel ") || is_argument(at); at = next_line(at))
        if (*at == 'k' && c->n_kernels < MOST_KERNELS) c->kernel[c->n_kernels++] = at;
}

/* A driver's compiler reads its library for the first kernel that it has not, which takes as long as some kernels do.  This one it has not
   where nothing was compiled yet. */
static void get_ready(const compiling *c) {
    cl_int code;
    cl_program program = clef_probe_build(c->context, "__kernel void set(__global int *x) { *x = 1; }");
    cl_kernel kernel = clCreateKernel(program, "set", &code);
    clef_probe_check(code);
    clef_probe_check(clSetKernelArg(kernel, 0, sizeof c->memory, &c->memory));
    clef_probe_check(clEnqueueNDRangeKernel(c->queue, kernel, 1, NULL, (size_t[]){1}, NULL, 0, NULL, NULL));
    clef_probe_check(clFinish(c->queue));
}

/* ---- compiling ----
   Programs and kernels are kept to the end: to release them is dear, and no part of the task. */

static cl_program build(const compiling *c, listed *p) {
    char *options = p->tried ? NULL : malloc(p->option_bytes + 1);
    cl_int code;
    p->tried = true;
    if (!options) return p->built;
    memcpy(options, p->options, p->option_bytes);
    options[p->option_bytes] = 0;
    cl_program program = clCreateProgramWithSource(c->context, 1, &p->text, &p->text_bytes, &code);
    clef_probe_check(code);
    if (clBuildProgram(program, 1, &c->id, options, NULL, NULL) == CL_SUCCESS) p->built = program;
    free(options);
    return p->built;
}

static unsigned char half_byte(char c) { return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10); }

static cl_int set_number(cl_kernel kernel, cl_uint i, const char *digits) {
    static unsigned char number[MOST_BYTES];
    size_t n = 0;
    for (; *digits != '\n' && n < sizeof number; digits += 2)
        number[n++] = (unsigned char)(half_byte(digits[0]) << 4 | half_byte(digits[1]));
    return clSetKernelArg(kernel, i, n, number);
}

/* What it touches finds room in `memory`.  Kernels that a driver refuses are left out. */
static void run_kernel(compiling *c, const char *line) {
    char name[NAME];
    size_t group[3];
    cl_int code;
    line += strlen("kernel ");
    size_t number = next_number(&line), length = strcspn(++line, " ");
    cl_program program = number < c->n_programs ? build(c, &c->program[number]) : NULL;
    if (!program || length >= sizeof name) return;
    memcpy(name, line, length);
    name[length] = 0;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    line += length;
    for (int i = 0; i < 3; i++) group[i] = next_number(&line);
    line++;
    for (cl_uint i = 0; is_argument(line) && code == CL_SUCCESS; i++, line = next_line(line))
        code = *line == 'm' ? clSetKernelArg(kernel, i, sizeof c->memory, &c->memory)
                            : set_number(kernel, i, line + strlen("number "));
    if (code == CL_SUCCESS) code = clEnqueueNDRangeKernel(c->queue, kernel, 3, NULL, group, group, 0, NULL, NULL);
    if (code == CL_SUCCESS) clef_probe_check(clFinish(c->queue));
}

/* ---- the process ---- */

static void *end_with_input(void *none) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0 || errno == EINTR) continue;
    (void)none;
    _exit(0);
}

/* No child of the program that started this one; what a kernel does by numbers that fit no tensor leaves no dump. */
static void go_on_alone(void) {
    pthread_t thread;
    pid_t other = fork();
    clef_probe_require(other >= 0);
    if (other > 0) _exit(0);
    alarm(PATIENCE);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    clef_probe_require(pthread_create(&thread, NULL, end_with_input, NULL) == 0);
}

void clef_probe_compile(const char *platform_name, long number) {
    static compiling c;
    cl_int code;
    clef_probe_require(number >= 0);
    fcntl(LIST, F_SETFD, FD_CLOEXEC);
    go_on_alone();
    c.id = clef_probe_find(platform_name, number);
    c.context = clef_probe_open(&c.id, 1);
    c.queue = clCreateCommandQueue(c.context, c.id, 0, &code);
    clef_probe_check(code);
    c.memory = clCreateBuffer(c.context, CL_MEM_READ_WRITE, MEMORY, NULL, &code);
    clef_probe_check(code);
    get_ready(&c);
    take_list(&c, read_list());
    alarm(PATIENCE);
    for (size_t i = c.n_kernels; i-- > 0;) run_kernel(&c, c.kernel[i]);
    _exit(0);
}
