/* code.c — what programs are compiled from, each told apart once.

   A plan has tens of launches, or tens of thousands, and few different programs.  Each asks for its code here, which costs a hash
   of the text that is its own; the hash by which programs are stored, over everything, is computed when the code is compiled.  A code
   remembers it, and so finds its program again for little, while that is in memory. */
#include "runtime/arithmetic.h"
#include "runtime/runtime_internal.h"
#include "runtime/text.h"
#include <stdio.h>
#include <string.h>

/* ---- the files of cl/, which the build put into the library ---- */

const char *(*clef__embedded_hook)(const char *file, const char *text);

static const struct clef__embedded_file *embedded(const char *file) {
    for (int i = 0; i < clef__embedded_count; i++)
        if (strcmp(clef__embedded_files[i].name, file) == 0) return &clef__embedded_files[i];
    return NULL;
}

static const char *text_of(const struct clef__embedded_file *f) {
    return clef__embedded_hook ? clef__embedded_hook(f->name, f->text) : f->text;
}

static const char *digest_of(const struct clef__embedded_file *f) {
    const char *text = text_of(f);
    return text == f->text ? f->digest : text;
}

const char *clef__embedded(const char *file) {
    const struct clef__embedded_file *f = embedded(file);
    return f ? text_of(f) : NULL;
}

const char *clef__embedded_digest(const char *file) {
    const struct clef__embedded_file *f = embedded(file);
    return f ? digest_of(f) : NULL;
}

const char *clef__embedded_digest_at(int n) { return n < clef__embedded_count ? digest_of(&clef__embedded_files[n]) : NULL; }

/* ---- the table ---- */

struct clef__code_entry {
    clef__code code; /* first: a code is an entry */
    clef__code_entry *next;
    clef__device *device;
    int holders;
    clef__code_entry *older, *newer; /* among idle ones */
    uint64_t hash;
    const char *file_text;
    const char *asked; /* the options that were asked for, the end of the code's */
    int uses;          /* what its whole text needs of common.h; 0: nobody asked yet */
    bool claimed, keyed;
    uint8_t key[32]; /* keyed: of its program */
};

static uint64_t hash_of(const char *text, const char *file_text, const char *options) {
    uint64_t hash = clef__hash(CLEF__HASH_START, &file_text, sizeof file_text);
    hash = clef__hash(hash, options, strlen(options));
    return text ? clef__hash(hash, text, strlen(text)) : hash;
}

static bool is(const clef__code_entry *e, const char *text, const char *file_text, const char *options) {
    return e->file_text == file_text && !e->code.text == !text && strcmp(e->asked, options) == 0 &&
           (!text || strcmp(e->code.text, text) == 0);
}

static void free_entry(clef__code_entry *e) {
    clef__free((char *)e->code.text);
    clef__free((char *)e->code.options);
    clef__free(e);
}

static clef__code_entry *new_entry(clef__device *device, const char *text, const char *file, const char *options) {
    clef__code_entry *e = clef__calloc(1, sizeof *e);
    const char *declares = clef__driver_of(&device->info).declares;
    if (!e) return NULL;
    e->code = (clef__code){text ? clef__strdup(text) : NULL, file, clef__asprintf("%s%s", declares, options), NULL, clef__moment()};
    e->device = device;
    e->asked = e->code.options ? e->code.options + strlen(declares) : NULL;
    if (e->code.options && !e->code.text == !text) return e;
    free_entry(e);
    return NULL;
}

/* Twice as many slots, or the first. */
static bool grow_table(clef__codes *codes) {
    size_t slots = codes->slots ? 2 * codes->slots : 256;
    clef__code_entry **table = clef__calloc(slots, sizeof(clef__code_entry *));
    if (!table) return codes->slots > 0;
    for (size_t i = 0; i < codes->slots; i++)
        for (clef__code_entry *e = codes->table[i], *next; e; e = next) {
            next = e->next;
            e->next = table[e->hash & (slots - 1)];
            table[e->hash & (slots - 1)] = e;
        }
    clef__free(codes->table);
    codes->table = table;
    codes->slots = slots;
    return true;
}

/* ---- codes that no launch has ---- */

enum { IDLE_CODES = 1024 }; /* of some kilobytes each */

static void unlist(clef__codes *codes, clef__code_entry *e) {
    *(e->older ? &e->older->newer : &codes->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &codes->newest) = e->older;
    codes->idle--;
}

static void list(clef__codes *codes, clef__code_entry *e) {
    e->older = codes->newest;
    e->newer = NULL;
    *(e->older ? &e->older->newer : &codes->oldest) = e;
    codes->newest = e;
    codes->idle++;
}

static void forget(clef__codes *codes, clef__code_entry *e) {
    clef__code_entry **at = &codes->table[e->hash & (codes->slots - 1)];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    codes->n--;
    unlist(codes, e);
    free_entry(e);
}

void clef__code_release(clef__code *code) {
    clef__code_entry *e = (clef__code_entry *)code;
    if (!e || --e->holders > 0) return;
    clef__codes *codes = &e->device->codes;
    clef__program_release(e->device, code->program);
    code->program = NULL;
    e->claimed = false;
    list(codes, e);
    if (codes->idle > IDLE_CODES) forget(codes, codes->oldest);
}

/* ---- asking for one ---- */

clef__code *clef__code_of(clef__device *device, const char *text, const char *file, const char *options) {
    clef__codes *codes = &device->codes;
    const char *file_text = file ? clef__embedded(file) : NULL;
    uint64_t hash = hash_of(text, file_text, options);
    if (codes->n >= codes->slots && !grow_table(codes)) return NULL;
    clef__code_entry **slot = &codes->table[hash & (codes->slots - 1)], *e = *slot;
    while (e && (e->hash != hash || !is(e, text, file_text, options))) e = e->next;
    if (!e && (e = new_entry(device, text, file, options))) {
        e->hash = hash;
        e->file_text = file_text;
        e->next = *slot;
        *slot = e;
        codes->n++;
    } else if (e && e->holders == 0) unlist(codes, e);
    if (e) e->holders++;
    return e ? &e->code : NULL;
}

/* Has it its program, or is that still in memory? */
static bool has_program(clef__code_entry *e) {
    if (!e->code.program && e->keyed) e->code.program = clef__program_known(e->device, e->key);
    return e->code.program;
}

int clef__code_uses(clef__code *code) {
    clef__code_entry *e = (clef__code_entry *)code;
    if (!e->uses) e->uses = clef__uses(code->text, code->file ? clef__embedded(code->file) : NULL, code->options);
    return e->uses;
}

bool clef__code_claim(clef__code *code) {
    clef__code_entry *e = (clef__code_entry *)code;
    if (e->claimed || has_program(e)) return false;
    clef__code_uses(code); /* several threads may ask for its text from now on */
    return e->claimed = true;
}

void clef__codes_close(clef__device *device) {
    clef__codes *codes = &device->codes;
    for (size_t i = 0; i < codes->slots; i++)
        for (clef__code_entry *e; (e = codes->table[i]);) {
            codes->table[i] = e->next;
            clef__program_release(device, e->code.program);
            free_entry(e);
        }
    clef__free(codes->table);
}

/* ---- compiling ---- */

char *clef__code_text(clef__code *code, const char *front) {
    const char *file = code->file ? clef__embedded(code->file) : "", *text = code->text ? code->text : "";
    return clef__asprintf("#define USES %d\n%s%s%s%s", clef__code_uses(code), clef__embedded("common.h"), front ? front : "", text,
                          file);
}

const char *clef__code_asked(const clef__code *code) { return ((const clef__code_entry *)code)->asked; }

void clef__code_have(clef__code *code, clef__program *program) {
    clef__code_entry *e = (clef__code_entry *)code;
    code->program = program;
    e->keyed = program;
    if (program) memcpy(e->key, program->key, sizeof e->key);
}

/* With Clef's own declarations, where there are such for the driver; with the driver's, if a user's text calls something else. */
static clef__program *compile_text(clef__device *device, const clef__code *code, const char *text, const char *kernel) {
    const char *asked = clef__code_asked(code);
    clef__program *program = asked > code->options ? clef__program_quietly(device, text, code->options, kernel, NULL) : NULL;
    if (program) return program;
    if (asked > code->options) clef__log_line(device->ctx, CLEF_LOG_DEBUG, "program: %s is compiled with all declarations", kernel);
    return clef__program_ready(device, text, asked, kernel);
}

bool clef__code_compile(clef__device *device, clef__code *code, const char *kernel) {
    clef__code_entry *e = (clef__code_entry *)code;
    e->claimed = false;
    if (has_program(e)) return true;
    char *text = clef__code_text(code, NULL);
    if (!text) clef__fail(device->ctx, CLEF_MEMORY, "program: out of host memory");
    else clef__code_have(code, compile_text(device, code, text, kernel));
    clef__free(text);
    return code->program != NULL;
}
