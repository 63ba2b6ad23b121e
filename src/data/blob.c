/* blob.c — a file's bytes in memory, inflated when they are gzip.  Files are taken to be hostile: memory follows
   the bytes that are really there, never a number that a file claims. */
#include "data/data_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef CLEF_HAVE_ZLIB
#include <zlib.h>
#endif

bool clef__wrong(clef__why *why, clef_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why->line, sizeof why->line, fmt, args);
    va_end(args);
    why->status = status;
    return false;
}

void clef__blob_free(clef__blob *blob) {
    clef__free(blob->bytes);
    *blob = (clef__blob){0};
}

static bool read_all(int file, clef__blob *blob, clef__why *why) {
    for (size_t at = 0; at < blob->size;) {
        ssize_t got = read(file, blob->bytes + at, blob->size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return clef__wrong(why, CLEF_IO, "cannot be read (%s)", strerror(errno));
        if (got == 0) return clef__wrong(why, CLEF_IO, "became shorter while it was read");
        at += (size_t)got;
    }
    return true;
}

bool clef__blob_read(const char *path, clef__blob *blob, clef__why *why) {
    *blob = (clef__blob){0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not make us wait */
    if (file < 0) return clef__wrong(why, CLEF_IO, "cannot be opened (%s)", strerror(errno));
    struct stat facts;
    bool ok = false;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) clef__wrong(why, CLEF_IO, "is not a regular file");
    else if (facts.st_size < 0 || (uintmax_t)facts.st_size > SIZE_MAX / 2) clef__wrong(why, CLEF_IO, "is too large");
    else {
        blob->size = (size_t)facts.st_size;
        blob->bytes = clef__alloc(blob->size ? blob->size : 1);
        ok = blob->bytes ? read_all(file, blob, why) : clef__wrong(why, CLEF_MEMORY, "needs %zu bytes of memory", blob->size);
    }
    close(file);
    if (!ok) clef__blob_free(blob);
    return ok;
}

bool clef__blob_is_gzip(const clef__blob *blob) { return blob->size >= 2 && blob->bytes[0] == 0x1f && blob->bytes[1] == 0x8b; }

#ifdef CLEF_HAVE_ZLIB
typedef struct inflater {
    z_stream z;
    const uint8_t *in;
    size_t left;  /* input not yet handed to zlib, whose counts are only 32 bits wide */
    bool ended;   /* the last member is complete */
    bool starved; /* zlib found no memory */
} inflater;

static voidpf inflater_alloc(voidpf unused, uInt count, uInt size) {
    (void)unused;
    return clef__calloc(count, size);
}

static void inflater_free(voidpf unused, voidpf p) {
    (void)unused;
    clef__free(p);
}

static bool inflater_open(inflater *f, const clef__blob *blob) {
    *f = (inflater){.in = blob->bytes, .left = blob->size};
    f->z.zalloc = inflater_alloc;
    f->z.zfree = inflater_free;
    return inflateInit2(&f->z, 15 + 16) == Z_OK;
}

static void inflater_refill(inflater *f) {
    if (f->z.avail_in > 0) return;
    uInt chunk = f->left > 1u << 30 ? 1u << 30 : (uInt)f->left;
    f->z.next_in = (Bytef *)(uintptr_t)f->in; /* zlib does not write through it */
    f->z.avail_in = chunk;
    f->in += chunk;
    f->left -= chunk;
}

/* Fills out as far as the input reaches; returns the bytes written, or SIZE_MAX for damaged input. */
static size_t inflater_run(inflater *f, uint8_t *out, size_t room) {
    size_t done = 0;
    while (done < room) {
        inflater_refill(f);
        if (f->ended) {
            if (f->z.avail_in == 0) break;
            if (inflateReset(&f->z) != Z_OK) return SIZE_MAX; /* gzip files may have several members */
            f->ended = false;
        }
        size_t want = room - done < 1u << 30 ? room - done : 1u << 30;
        f->z.next_out = out + done;
        f->z.avail_out = (uInt)want;
        int status = inflate(&f->z, Z_NO_FLUSH);
        done += want - f->z.avail_out;
        f->ended = status == Z_STREAM_END;
        f->starved = status == Z_MEM_ERROR;
        if (status == Z_BUF_ERROR && f->z.avail_in == 0 && f->left == 0) break; /* truncated */
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return SIZE_MAX;
    }
    return done;
}

/* True unless run() could not go on. */
static bool inflater_fine(const inflater *f, size_t got, clef__why *why) {
    if (f->starved) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is to inflate");
    return got != SIZE_MAX || clef__wrong(why, CLEF_FORMAT, "is damaged gzip data; fetch it again");
}

bool clef__gunzip_head(const clef__blob *blob, uint8_t *out, size_t want, size_t *got, clef__why *why) {
    inflater f;
    if (!inflater_open(&f, blob)) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is to inflate");
    *got = inflater_run(&f, out, want);
    inflateEnd(&f.z);
    return inflater_fine(&f, *got, why);
}

/* Grows by doubling: at most twice the bytes produced so far (and one byte past limit, to see that there is more).
 */
static bool inflate_whole(inflater *f, clef__blob *out, size_t first, size_t limit, clef__why *why) {
    for (size_t room = first;;) {
        if (room > limit) room = limit + 1;
        uint8_t *bytes = clef__realloc(out->bytes, room);
        if (!bytes) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is to inflate");
        out->bytes = bytes;
        size_t got = inflater_run(f, bytes + out->size, room - out->size);
        if (!inflater_fine(f, got, why)) return false;
        out->size += got;
        if (out->size > limit) return clef__wrong(why, CLEF_FORMAT, "inflates to more than the %zu bytes it may have", limit);
        if (out->size < room)
            return f->ended || clef__wrong(why, CLEF_FORMAT, "ends in the middle of its gzip data; fetch it again");
        room = room > SIZE_MAX / 4 ? limit + 1 : room * 2;
    }
}

bool clef__blob_gunzip(clef__blob *blob, size_t limit, clef__why *why) {
    inflater f;
    clef__blob out = {0};
    if (!inflater_open(&f, blob)) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is to inflate");
    if (limit > SIZE_MAX / 4) limit = SIZE_MAX / 4;
    size_t first = blob->size < SIZE_MAX / 8 ? blob->size * 4 + 64 : limit;
    bool ok = inflate_whole(&f, &out, first, limit, why);
    inflateEnd(&f.z);
    clef__blob_free(ok ? blob : &out);
    if (ok) *blob = out;
    return ok;
}
#else
static bool no_zlib(clef__why *why) {
    return clef__wrong(why, CLEF_UNSUPPORTED, "is gzip, which this build cannot read (no zlib); unpack it with gunzip");
}

bool clef__gunzip_head(const clef__blob *blob, uint8_t *out, size_t want, size_t *got, clef__why *why) {
    (void)blob, (void)out, (void)want, (void)got;
    return no_zlib(why);
}

bool clef__blob_gunzip(clef__blob *blob, size_t limit, clef__why *why) {
    (void)blob, (void)limit;
    return no_zlib(why);
}
#endif
