/* device.c — all platforms and devices of this machine, and the choice among them.

   The list is made once, under a lock, and lives as long as the process (its strings are handed out).  An empty
   list is not kept, nor is one for which memory was too short: the next call looks again. */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_PLATFORMS = 32, MAX_FOUND = 64, CL_PLATFORM_NOT_FOUND = -1001 /* cl_ext.h */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static clef__found found[MAX_FOUND];
static int n_found;

/* ---- facts ---- */
/* A fact that a driver does not know is 0 or ""; one that it had no memory for is not known yet. */
static _Thread_local bool short_of_memory;

static bool answered(cl_int code) {
    short_of_memory |= code == CL_OUT_OF_HOST_MEMORY || code == CL_OUT_OF_RESOURCES;
    return code == CL_SUCCESS;
}

static void trim(char *text) {
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    size_t lead = 0;
    while (text[lead] && isspace((unsigned char)text[lead])) lead++;
    if (lead) memmove(text, text + lead, n - lead + 1);
}

static char *device_text(cl_device_id id, cl_device_info what) {
    size_t n = 0;
    if (!answered(clGetDeviceInfo(id, what, 0, NULL, &n))) n = 0;
    char *text = clef__calloc(n + 1, 1);
    if (text && n && !answered(clGetDeviceInfo(id, what, n, text, NULL))) text[0] = 0;
    if (text) trim(text);
    return text;
}

static char *platform_text(cl_platform_id id, cl_platform_info what) {
    size_t n = 0;
    if (!answered(clGetPlatformInfo(id, what, 0, NULL, &n))) n = 0;
    char *text = clef__calloc(n + 1, 1);
    if (text && n && !answered(clGetPlatformInfo(id, what, n, text, NULL))) text[0] = 0;
    if (text) trim(text);
    return text;
}

static uint64_t device_number(cl_device_id id, cl_device_info what, size_t bytes) {
    union {
        cl_uint u;
        cl_ulong l;
        size_t s;
    } value = {.l = 0};
    if (!answered(clGetDeviceInfo(id, what, bytes, &value, NULL))) return 0;
    return bytes == sizeof(cl_uint) ? value.u : bytes == sizeof(cl_ulong) ? value.l : value.s;
}

bool clef__has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    bool is_word = n > 0 && !strchr(word, ' ');
    for (const char *at = is_word ? words : NULL; at && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    return false;
}

/* A simulator may claim to be everything at once; it is then taken for a GPU, whose kernels it can check. */
static const char *type_name(cl_device_type type) {
    return type & CL_DEVICE_TYPE_GPU           ? "gpu"
           : type & CL_DEVICE_TYPE_CPU         ? "cpu"
           : type & CL_DEVICE_TYPE_ACCELERATOR ? "accelerator"
                                               : "other";
}

static const char *why_unusable(cl_device_id id, const clef_device_info *info) {
    int major = 0, minor = 0;
    if (!device_number(id, CL_DEVICE_AVAILABLE, sizeof(cl_bool))) return "it is not available";
    if (!device_number(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool))) return "its driver has no compiler";
    if (sscanf(info->version, "OpenCL %d.%d", &major, &minor) == 2 && major * 10 + minor < 12) return "it is older than OpenCL 1.2";
    return NULL;
}

void clef__device_free_texts(clef_device_info *info) {
    clef__free((void *)info->name);
    clef__free((void *)info->vendor);
    clef__free((void *)info->driver);
    clef__free((void *)info->version);
    clef__free((void *)info->extensions);
    clef__free((void *)info->platform);
    clef__free((void *)info->platform_version);
}

static bool read_texts(cl_platform_id platform, cl_device_id id, clef_device_info *info) {
    info->name = device_text(id, CL_DEVICE_NAME);
    info->vendor = device_text(id, CL_DEVICE_VENDOR);
    info->driver = device_text(id, CL_DRIVER_VERSION);
    info->version = device_text(id, CL_DEVICE_VERSION);
    info->extensions = device_text(id, CL_DEVICE_EXTENSIONS);
    info->platform = platform_text(platform, CL_PLATFORM_NAME);
    info->platform_version = platform_text(platform, CL_PLATFORM_VERSION);
    if (info->name && info->vendor && info->driver && info->version && info->extensions && info->platform && info->platform_version)
        return true;
    clef__device_free_texts(info);
    return false;
}

static uint32_t float_lanes(cl_device_id id) {
    uint64_t native = device_number(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(cl_uint));
    uint64_t preferred = device_number(id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, sizeof(cl_uint));
    return (uint32_t)(native > preferred ? native : preferred);
}

bool clef__device_facts(cl_platform_id platform, cl_device_id id, clef__found *out) {
    clef_device_info info = {.index = -1};
    short_of_memory = false;
    if (!read_texts(platform, id, &info)) return false;
    info.type = type_name((cl_device_type)device_number(id, CL_DEVICE_TYPE, sizeof(cl_device_type)));
    info.compute_units = (uint32_t)device_number(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    info.clock_mhz = (uint32_t)device_number(id, CL_DEVICE_MAX_CLOCK_FREQUENCY, sizeof(cl_uint));
    info.vector_width = float_lanes(id);
    info.global_bytes = device_number(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    info.max_alloc_bytes = device_number(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    info.local_bytes = device_number(id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong));
    info.cache_bytes = device_number(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof(cl_ulong));
    info.max_work_group = (size_t)device_number(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    info.local_is_dedicated = device_number(id, CL_DEVICE_LOCAL_MEM_TYPE, sizeof(cl_uint)) == CL_LOCAL;
    info.group_multiple = (uint32_t)device_number(id, CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof(size_t));
    info.f64 = clef__has_word(info.extensions, "cl_khr_fp64") ||
               device_number(id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(cl_device_fp_config)) != 0;
    info.f16 = clef__has_word(info.extensions, "cl_khr_fp16");
    if (info.max_work_group == 0) info.max_work_group = 1;
    *out = (clef__found){.platform = platform, .id = id, .whole = id, .units = info.compute_units, .info = info};
    out->unusable = why_unusable(id, &info);
    if (short_of_memory) clef__device_free_texts(&info);
    return !short_of_memory;
}

/* ---- the list ---- */
static cl_uint platforms(cl_platform_id ids[MAX_PLATFORMS], cl_int *code) {
    cl_uint n = 0;
    *code = clGetPlatformIDs(MAX_PLATFORMS, ids, &n);
    if (*code != CL_SUCCESS) return 0;
    return n < MAX_PLATFORMS ? n : MAX_PLATFORMS;
}

/* False when memory was too short for a device's facts.  A platform that offers none is passed by, whatever it says. */
static bool list_platform(cl_platform_id platform) {
    cl_device_id ids[MAX_FOUND];
    cl_uint n = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_FOUND, ids, &n) != CL_SUCCESS) return true;
    for (cl_uint i = 0; i < n && i < MAX_FOUND && n_found < MAX_FOUND; i++) {
        if (!clef__device_facts(platform, ids[i], &found[n_found])) return false;
        found[n_found].info.index = n_found;
        n_found++;
    }
    return true;
}

/* What a line says about a limit that may be the reason. */
static const char *about_limit(void) {
    return clef__address_space_left() == UINT64_MAX ? ""
                                                    : "; the address space is limited (ulimit -v): is that enough for the driver?";
}

/* "Portable thing (CL_OUT_OF_HOST_MEMORY), …": the platforms, and why they offered nothing where that is news. */
static void name_platforms(const cl_platform_id *ids, cl_uint n, char *names, size_t size) {
    size_t used = 0;
    for (cl_uint i = 0; i < n && used < size; i++) {
        cl_uint devices;
        cl_int code = clGetDeviceIDs(ids[i], CL_DEVICE_TYPE_ALL, 0, NULL, &devices);
        bool news = code != CL_SUCCESS && code != CL_DEVICE_NOT_FOUND;
        char *name = platform_text(ids[i], CL_PLATFORM_NAME);
        used += (size_t)snprintf(names + used, size - used, "%s%s%s%s%s", i ? ", " : "", name ? name : "?", news ? " (" : "",
                                 news ? clef__cl_name(code) : "", news ? ")" : "");
        clef__free(name);
    }
}

/* "no OpenCL device: …", naming the platforms that offered nothing. */
static void explain_none(void) {
    cl_platform_id ids[MAX_PLATFORMS];
    cl_int code;
    cl_uint n = platforms(ids, &code);
    char names[CLEF__LINE / 2] = "";
    if (code != CL_SUCCESS && code != CL_PLATFORM_NOT_FOUND) {
        clef__fail_cl(NULL, code, "open: the OpenCL platforms cannot be listed");
        return;
    }
    name_platforms(ids, n, names, sizeof names);
    if (n == 0)
        clef__fail(NULL, CLEF_NO_DEVICE,
                   "open: no OpenCL platform is installed; install a driver for the device (for a CPU: pocl)%s", about_limit());
    else
        clef__fail(NULL, CLEF_NO_DEVICE,
                   "open: the driver offers no device (platforms: %s); is the home directory writable, is the "
                   "device there?%s",
                   names, about_limit());
}

/* All or nothing: a list without the device that memory was too short for would stay so. */
static bool make_list(void) {
    cl_platform_id ids[MAX_PLATFORMS];
    cl_int code;
    cl_uint n = platforms(ids, &code);
    bool good = true;
    for (cl_uint i = 0; i < n && good; i++) good = list_platform(ids[i]);
    while (!good && n_found) clef__device_free_texts(&found[--n_found].info);
    if (!good) clef__fail(NULL, CLEF_MEMORY, "open: no host memory to list the devices%s", about_limit());
    return good;
}

int clef__devices(const clef__found **list) {
    *list = found;
    if (!clef__start()) return 0;
    pthread_mutex_lock(&lock);
    if (n_found == 0 && clef__has_room() && make_list() && n_found == 0) explain_none();
    pthread_mutex_unlock(&lock);
    return n_found;
}

const clef__found *clef__devices_find(cl_device_id id) {
    const clef__found *list;
    int n = clef__devices(&list);
    for (int i = 0; i < n; i++)
        if (list[i].id == id) return &list[i];
    return NULL;
}

int clef_device_count(void) {
    const clef__found *list;
    return clef__devices(&list);
}

bool clef_device_get(int index, clef_device_info *info) {
    const clef__found *list;
    int n = clef__devices(&list);
    if (!info || index < 0 || index >= n) return false;
    *info = list[index].info;
    return true;
}

/* ---- choice ---- */
static double score(const clef__found *f) {
    static const char *const order[] = {"other", "accelerator", "cpu", "gpu"};
    double rank = 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(f->info.type, order[i]) == 0) rank = i;
    /* 1e12 stands above any units times clock */
    return rank * 1e12 + (double)f->info.compute_units * f->info.clock_mhz;
}

static bool contains(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, n) == 0) return true;
    return false;
}

typedef enum kind { BY_TYPE, BY_NAME, BY_PLATFORM, KINDS } kind;

static bool matches(const clef__found *f, const char *choice, kind how) {
    if (!choice) return true;
    if (how == BY_TYPE) return strcasecmp(f->info.type, choice) == 0;
    return contains(how == BY_NAME ? f->info.name : f->info.platform, choice);
}

/* The best of those that match; NULL: of all. */
static int best(const clef__found *list, int n, const char *choice) {
    for (int how = BY_TYPE; how < KINDS; how++) {
        int at = -1;
        for (int i = 0; i < n; i++)
            if (!list[i].unusable && matches(&list[i], choice, (kind)how) && (at < 0 || score(&list[i]) > score(&list[at]))) at = i;
        if (at >= 0) return at;
    }
    return -1;
}

static void refuse_choice(const clef__found *list, int n, const char *choice, const char *why) {
    char have[CLEF__LINE - 256] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof have; i++)
        used += (size_t)snprintf(have + used, sizeof have - used, "%s%d %s (%s, %s%s%s)", i ? "; " : "", i, list[i].info.name,
                                 list[i].info.type, list[i].info.platform, list[i].unusable ? ": " : "",
                                 list[i].unusable ? list[i].unusable : "");
    if (choice) clef__fail(NULL, CLEF_INVALID, "open: device \"%.80s\" %s; there are: %s", choice, why, have);
    else clef__fail(NULL, CLEF_NO_DEVICE, "open: no device can be used; there are: %s", have);
}

static int choose_one(const clef__found *list, int n, const char *choice) {
    bool digits = choice && *choice;
    for (const char *c = choice; c && *c; c++) digits = digits && isdigit((unsigned char)*c);
    if (!digits) {
        int at = best(list, n, choice);
        if (at < 0) refuse_choice(list, n, choice, "not found");
        return at;
    }
    long index = strlen(choice) < 6 ? strtol(choice, NULL, 10) : n;
    if (index >= n) refuse_choice(list, n, choice, "not found");
    else if (list[index].unusable) refuse_choice(list, n, choice, "cannot be used");
    else return (int)index;
    return -1;
}

/* A name may end like parts itself. */
static bool choose(const clef__found *list, int n, const char *text, clef__choice *out) {
    char name[256];
    int at = clef__parts_at(text);
    bool parts = at > 0 && best(list, n, text) < 0;
    snprintf(name, sizeof name, "%.*s", parts ? at : (int)sizeof name - 1, text);
    *out = (clef__choice){.index = choose_one(list, n, name)};
    return out->index >= 0 && (!parts || clef__parts_read(text, at, &list[out->index].info, out));
}

static int choose_list(const clef__found *list, int n, const char *choice, clef__choice chosen[CLEF__MAX_DEVICES]) {
    int count = 0, devices = 0;
    for (const char *at = choice; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char name[256];
        clef__choice next;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        trim(name);
        if (!*name) {
            refuse_choice(list, n, choice, "has an empty part");
            return 0;
        }
        if (!choose(list, n, name, &next)) return 0;
        devices += clef__choice_devices(&next);
        if (devices > CLEF__MAX_DEVICES) {
            clef__fail(NULL, CLEF_INVALID, "open: more than %d devices in \"%.200s\"", CLEF__MAX_DEVICES, choice);
            return 0;
        }
        chosen[count++] = next;
    }
    return count;
}

int clef__devices_choose(const char *choice, clef__choice chosen[CLEF__MAX_DEVICES]) {
    const clef__found *list;
    int n = clef__devices(&list);
    if (n == 0) return 0;
    if (!choice) choice = clef__env("CLEF_DEVICE");
    if (!choice || !*choice) {
        chosen[0] = (clef__choice){.index = choose_one(list, n, NULL)};
        return chosen[0].index >= 0;
    }
    /* a name may hold commas itself */
    if (strchr(choice, ',') && best(list, n, choice) < 0) return choose_list(list, n, choice, chosen);
    return choose(list, n, choice, &chosen[0]);
}
