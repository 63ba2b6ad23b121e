/* rank_devices.c — which device each rank has: the entries of a list, or what the machine has. */
#include "group/group.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- of a list ---- */
/* How many parts an entry that ends in "/3" or ":1+2+1" asks for, 3; 0: it is a whole device. */
static int parts_of(const char *entry) {
    const char *mark = strrchr(entry, '/') ? strrchr(entry, '/') : strrchr(entry, ':');
    if (!mark || mark == entry || !isdigit((unsigned char)mark[1])) return 0;
    if (mark[1 + strspn(mark + 1, *mark == '/' ? "0123456789" : "0123456789+")]) return 0;
    if (*mark == '/') return strlen(mark + 1) < 6 ? (int)strtol(mark + 1, NULL, 10) : CLEF__RANKS + 1;
    int n = 1;
    for (const char *c = mark; *c; c++) n += *c == '+';
    return n;
}

static clef_status refuse(const char *what, const char *devices, const char *why) {
    return clef__fail(NULL, CLEF_INVALID, "%s: the devices \"%.200s\" %s", what, devices, why);
}

/* Adds the devices of one entry: itself, or "ENTRY#0", "ENTRY#1", … for its parts. */
static clef_status add_entry(const char *what, const char *devices, const char *entry, clef__device_name *device, int *n) {
    int parts = parts_of(entry), ranks = parts ? parts : 1;
    if (*n + ranks > CLEF__RANKS) return refuse(what, devices, "make more than 256 ranks");
    for (int i = 0; i < ranks; i++) {
        if (parts) snprintf(device[*n], sizeof(clef__device_name), "%.240s#%d", entry, i);
        else snprintf(device[*n], sizeof(clef__device_name), "%s", entry);
        ++*n;
    }
    return CLEF_OK;
}

clef_status clef__rank_devices(const char *what, const char *devices, clef__device_name *device, int *n) {
    clef_status status = CLEF_OK;
    for (const char *at = devices; at && status == CLEF_OK; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char entry[sizeof(clef__device_name) - 12];
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        while (length && at[length - 1] == ' ') length--;
        if (length == 0) return refuse(what, devices, "have an empty part");
        if (length >= sizeof entry) return refuse(what, devices, "have a part that is too long");
        snprintf(entry, sizeof entry, "%.*s", (int)length, at);
        status = add_entry(what, devices, entry, device, n);
    }
    return status;
}

/* ---- of the machine ---- */
/* What clef_open takes first: a GPU before a CPU, then the most units and the fastest.  Without devices its index is -1. */
static clef_device_info best_device(void) {
    static const char *const order[] = {"other", "accelerator", "cpu", "gpu"};
    clef_device_info info, best = {.index = -1};
    double most = -1;
    for (int i = 0; clef_device_get(i, &info); i++) {
        double score = (double)info.compute_units * info.clock_mhz;
        for (int type = 0; type < 4; type++)
            if (strcmp(info.type, order[type]) == 0) score += type * 1e12;
        if (score <= most) continue;
        most = score;
        best = info;
    }
    return best;
}

static bool can_be_divided(const clef_device_info *device, int n) {
    const char *threads = clef__env("CLEF_THREADS");
    return strcmp(device->type, "cpu") == 0 && n > 1 && n <= CLEF__MAX_DEVICES && device->compute_units >= (uint32_t)n &&
           !(threads && *threads);
}

static clef_status of_machine(int i, int n, clef__device_name device) {
    clef_device_info info, best = best_device();
    int index[CLEF__RANKS], found = 0;
    if (best.index < 0) return clef__fail(NULL, CLEF_NO_DEVICE, "rank_device: this machine has no OpenCL device; see clef devices");
    for (int d = 0; found < CLEF__RANKS && clef_device_get(d, &info); d++)
        if (strcmp(info.platform, best.platform) == 0 && strcmp(info.type, best.type) == 0) index[found++] = d;
    if (found == 1 && can_be_divided(&best, n)) snprintf(device, sizeof(clef__device_name), "%d/%d#%d", best.index, n, i);
    else snprintf(device, sizeof(clef__device_name), "%d", index[i % found]);
    return CLEF_OK;
}

clef_status clef_rank_device(const char *devices, int i, int n, char *device, size_t size) {
    clef__device_name *list = clef__calloc(CLEF__RANKS, sizeof *list);
    int entries = 0;
    if (!list) return clef__fail(NULL, CLEF_MEMORY, "rank_device: no host memory for the list of devices");
    if (!devices) devices = clef__env("CLEF_DEVICE");
    clef_status status = CLEF_OK;
    if (!device || n < 1 || i < 0 || i >= n)
        status = clef__fail(NULL, CLEF_INVALID, "rank_device: %d of %d; it counts from 0", i, n);
    else if (devices && *devices) status = clef__rank_devices("rank_device", devices, list, &entries);
    else status = of_machine(i, n, list[0]);
    if (status == CLEF_OK) snprintf(device, size, "%s", list[entries ? i % entries : 0]);
    clef__free(list);
    return status;
}
