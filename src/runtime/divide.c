/* divide.c — devices used in parts: sub-devices of some of their compute units (clef_options.device and threads). */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 6 };

int clef__threads_wanted(int option) {
    const char *text = clef__env("CLEF_THREADS");
    if (option < 0) clef__fail(NULL, CLEF_INVALID, "open: threads is %d; it is 1 or more, or 0 for all of the device's", option);
    if (option != 0 || !text || !*text) return option;
    size_t digits = 0;
    while (isdigit((unsigned char)text[digits])) digits++;
    if (!text[digits] && digits <= MOST_DIGITS && atoi(text) > 0) return atoi(text);
    clef__fail(NULL, CLEF_INVALID, "open: CLEF_THREADS is \"%.40s\"; it is a whole number from 1 to 999999", text);
    return -1;
}

int clef__parts_at(const char *choice) {
    const char *mark = strrchr(choice, '/') ? strrchr(choice, '/') : strrchr(choice, ':');
    if (!mark || mark == choice || !isdigit((unsigned char)mark[1])) return -1;
    const char *of = *mark == '/' ? "0123456789" : "0123456789+";
    char end = mark[1 + strspn(mark + 1, of)];
    return end && end != '#' ? -1 : (int)(mark - choice);
}

static bool refuse_parts(const char *choice, const clef_device_info *device, const char *why) {
    clef__fail(NULL, CLEF_INVALID,
               "open: device \"%.80s\": %s; %s has %u compute units; write NAME/2 for two equal parts, NAME:1+3 "
               "for parts of one unit and three, at most %d in all, NAME/2#0 for the first of two",
               choice, why, device->name, device->compute_units, CLEF__MAX_DEVICES);
    return false;
}

/* A number of at most so many digits as there are compute units of anything; 0: none. */
static uint32_t read_count(const char **at) {
    char *end;
    unsigned long count = strtoul(*at, &end, 10);
    bool good = end != *at && end - *at <= MOST_DIGITS;
    *at = end;
    return good ? (uint32_t)count : 0;
}

static bool read_equal(const char *choice, const char **at, const clef_device_info *device, clef__choice *parts) {
    uint32_t count = read_count(at), units = device->compute_units;
    if (count == 0 || count > CLEF__MAX_DEVICES || count > units) return refuse_parts(choice, device, "not so many parts");
    for (parts->parts = 0; parts->parts < (int)count; parts->parts++) parts->units[parts->parts] = units / count;
    return true;
}

static bool read_counts(const char *choice, const char **at, const clef_device_info *device, clef__choice *parts) {
    uint32_t left = device->compute_units;
    for (parts->parts = 0;; ++*at) {
        uint32_t units = read_count(at);
        if (units == 0) return refuse_parts(choice, device, "a part has one compute unit or more");
        if (units > left || parts->parts == CLEF__MAX_DEVICES) return refuse_parts(choice, device, "more than there is");
        parts->units[parts->parts++] = units;
        left -= units;
        if (**at != '+') return true;
    }
}

/* The number of one part, from 0. */
static bool read_only(const char *choice, const char *at, const clef_device_info *device, clef__choice *parts) {
    char *end;
    unsigned long number = strtoul(at, &end, 10);
    if (!isdigit((unsigned char)*at) || *end) return refuse_parts(choice, device, "behind # stands the number of a part");
    if (number >= (unsigned long)parts->parts) return refuse_parts(choice, device, "no part has that number; they count from 0");
    parts->only = (int)number + 1;
    return true;
}

bool clef__parts_read(const char *choice, int parts_at, const clef_device_info *device, clef__choice *parts) {
    const char *at = choice + parts_at;
    bool good = (*at++ == '/' ? read_equal : read_counts)(choice, &at, device, parts);
    return good && (*at != '#' || read_only(choice, at + 1, device, parts));
}

void clef__threads_choose(int threads, const clef_device_info *device, clef__choice *choice) {
    if (threads == 0 || strcmp(device->type, "cpu") != 0 || (uint32_t)threads >= device->compute_units) return;
    choice->parts = 1;
    choice->units[0] = (uint32_t)threads;
}

static bool divides_by_counts(cl_device_id device) {
    cl_device_partition_property kinds[16] = {0};
    size_t bytes = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes) != CL_SUCCESS) return false;
    for (size_t i = 0; i < bytes / sizeof *kinds; i++)
        if (kinds[i] == CL_DEVICE_PARTITION_BY_COUNTS) return true;
    return false;
}

static cl_int create_parts(cl_device_id whole, const clef__choice *choice, cl_device_id ids[CLEF__MAX_DEVICES]) {
    cl_device_partition_property by_counts[CLEF__MAX_DEVICES + 3] = {CL_DEVICE_PARTITION_BY_COUNTS};
    for (int i = 0; i < choice->parts; i++) by_counts[1 + i] = choice->units[i];
    by_counts[1 + choice->parts] = CL_DEVICE_PARTITION_BY_COUNTS_LIST_END;
    return divides_by_counts(whole) ? clCreateSubDevices(whole, by_counts, (cl_uint)choice->parts, ids, NULL) : CL_INVALID_VALUE;
}

/* ---- parts that were made ---- */
/* They stay with the process, as the list of devices does, and are handed out again: pocl's threads may still look at a part when the
   last of its work is over and its context closed. */
typedef struct partition {
    struct partition *next;
    cl_device_id whole;
    clef__choice choice;
    cl_device_id ids[CLEF__MAX_DEVICES];
} partition;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static partition *made;

static const partition *find_made(cl_device_id whole, const clef__choice *choice) {
    const partition *p = made;
    while (p && (p->whole != whole || p->choice.parts != choice->parts ||
                 memcmp(p->choice.units, choice->units, (size_t)choice->parts * sizeof *choice->units) != 0))
        p = p->next;
    return p;
}

static cl_int make(cl_device_id whole, const clef__choice *choice, const partition **out) {
    partition *p = malloc(sizeof *p); /* not the program's allocator: it may be another one by the end of the process */
    if (!p) return CL_OUT_OF_HOST_MEMORY;
    *p = (partition){.next = made, .whole = whole, .choice = *choice};
    cl_int code = create_parts(whole, choice, p->ids);
    if (code != CL_SUCCESS) {
        free(p);
        return code;
    }
    *out = made = p;
    return CL_SUCCESS;
}

static cl_int find_or_make(cl_device_id whole, const clef__choice *choice, const partition **out) {
    pthread_mutex_lock(&lock);
    *out = find_made(whole, choice);
    cl_int code = *out ? CL_SUCCESS : make(whole, choice, out);
    pthread_mutex_unlock(&lock);
    return code;
}

int clef__choice_devices(const clef__choice *choice) { return choice->parts == 0 || choice->only ? 1 : choice->parts; }

int clef__device_divide(clef_context *ctx, const clef__found *whole, const clef__choice *choice,
                        clef__found parts[CLEF__MAX_DEVICES]) {
    const partition *p;
    parts[0] = *whole;
    if (choice->parts == 0) return 1;
    cl_int code = find_or_make(whole->id, choice, &p);
    if (code != CL_SUCCESS) {
        clef__fail(ctx, CLEF_UNSUPPORTED, "open: the driver of %s cannot keep %u of its %u compute units apart (%s); open it whole",
                   whole->info.name, choice->units[0], whole->info.compute_units, clef__cl_name(code));
        return 0;
    }
    int n = clef__choice_devices(choice), first = choice->only ? choice->only - 1 : 0;
    for (int i = 0; i < n; i++) {
        parts[i] = *whole;
        parts[i].id = p->ids[first + i];
        parts[i].divided = true;
        parts[i].info.compute_units = choice->units[first + i];
    }
    return n;
}
