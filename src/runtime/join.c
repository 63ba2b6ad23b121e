/* join.c — several codes compiled as one program.

   What a driver's compiler does before it looks at a source may take longer than a small kernel does, and to find a program again where it
   keeps it takes a driver nearly as long for a small source as for ten of them.  So the programs of a plan become few.

   A plan that differs a little from one of before shall find what it has in common with it.  So Clef's cache says of each code by which text
   it was compiled (CLEF__ENTRY_PART: the text's key, and the part's number in it) and has these texts (CLEF__ENTRY_JOINED: the options,
   a zero byte, the text).  Codes that are known are taken from there; the others form new programs, and one that is new alone stays so.
   Without a cache, files stay alone. */
#include "runtime/names.h"
#include "runtime/runtime_internal.h"
#include "runtime/text.h"
#include <stdio.h>
#include <string.h>

void clef__part_kernel(int number, const char *kernel, char name[CLEF__JOINED_NAME]) {
    snprintf(name, CLEF__JOINED_NAME, "%s_%d", kernel, number);
}

/* ---- what is to be joined ---- */

/* Codes of a plan that are news: their keys, and in which of the programs they are. */
typedef struct news {
    clef__device *device;
    const char *name;
    clef__code *const *code;
    uint8_t (*key)[32];
    int *which, n; /* places in `code`; -1: not any more */
    clef__join *first, **end;
} news;

static bool remembers(const clef__device *device) { return device->saving == CLEF__SAVE_FAILURES; }

static void free_texts(const clef__join *join) {
    clef__free(join->text);
    clef__free(join->options);
}

/* One like this, behind the others. */
static clef__join *new_join(news *all, clef__join like) {
    clef__join *join = clef__alloc(sizeof *join);
    if (!join) return NULL;
    like.device = all->device;
    like.name = all->name;
    *join = like;
    *all->end = join;
    all->end = &join->next;
    return join;
}

static void add_part(clef__join *join, const news *all, int which, int number) {
    join->part[join->n] = all->code[which];
    join->number[join->n] = number;
    memcpy(join->key[join->n], all->key[which], sizeof join->key[join->n]);
    join->n++;
}

static bool key_of(clef__device *device, clef__code *code, uint8_t key[32]) {
    char *text = clef__code_text(code, NULL);
    bool known = text && clef__program_key(device, text, code->options, key);
    clef__free(text);
    return known;
}

/* ---- what was joined before ---- */

/* A part's entry: the text's key, the part's number in it, and the edition: another one when names.c makes other texts of the same parts.  ALONE:
   the number of a part that is all of its program. */
enum { PART_BYTES = 34, PART_NUMBER = 32, PART_EDITION = 33, EDITION = 1, ALONE = 255 };

/* Who asks for it builds it. */
static void leave_alone(const news *all, int which) { clef__program_enter(all->device, all->key[which], NULL, 0); }

/* The options before the zero byte, and the text behind it. */
static bool take_text(clef__join *join, const clef__entry *entry) {
    const char *both = (const char *)entry->payload;
    size_t options = strnlen(both, entry->size);
    if (entry->kind != CLEF__ENTRY_JOINED || options == entry->size) return false;
    join->options = clef__strdup(both);
    join->text = clef__asprintf("%.*s", (int)(entry->size - options - 1), both + options + 1);
    return join->options && join->text;
}

/* The program of this text, which may be among them; NULL: it is not there any more. */
static clef__join *recall_text(news *all, const unsigned char *key) {
    for (clef__join *join = all->first; join; join = join->next)
        if (join->text && memcmp(join->text_key, key, 32) == 0) return join;
    clef__entry entry;
    unsigned char *bytes = clef__cache_load(all->device->ctx, key, &entry);
    clef__join found = {.known = true}, *join = bytes && take_text(&found, &entry) ? new_join(all, found) : NULL;
    if (join) memcpy(join->text_key, key, 32);
    else free_texts(&found);
    clef__free(bytes);
    return join;
}

/* Takes a code out of the news that was compiled before: in a program with others, alone, or in vain. */
static bool recall_one(news *all, int which) {
    clef__entry entry = {0};
    unsigned char *bytes = clef__cache_load(all->device->ctx, all->key[which], &entry);
    bool part = bytes && entry.kind == CLEF__ENTRY_PART && entry.size == PART_BYTES && entry.payload[PART_EDITION] == EDITION;
    bool alone = bytes && (part ? entry.payload[PART_NUMBER] == ALONE : entry.kind == CLEF__ENTRY_FAILURE);
    clef__join *join = part && !alone ? recall_text(all, entry.payload) : NULL;
    bool known = join && join->n < CLEF__JOINED;
    if (known) add_part(join, all, which, entry.payload[PART_NUMBER]);
    else if (alone) leave_alone(all, which);
    clef__free(bytes);
    return known || alone;
}

static void recall(news *all) {
    int left = 0;
    for (int i = 0; i < all->n; i++)
        if (!recall_one(all, all->which[i])) all->which[left++] = all->which[i];
    all->n = left;
}

static void keep_part(clef__device *device, const uint8_t key[32], const uint8_t text_key[32], int number) {
    unsigned char payload[PART_BYTES];
    memcpy(payload, text_key, 32);
    payload[PART_NUMBER] = (unsigned char)number;
    payload[PART_EDITION] = EDITION;
    clef__cache_store(device->ctx, key, CLEF__ENTRY_PART, payload, sizeof payload);
}

static void keep_alone(clef__device *device, const uint8_t key[32]) {
    static const uint8_t none[32];
    if (remembers(device)) keep_part(device, key, none, ALONE);
}

/* By what the text is found in the cache; the key of the program that is made of it is another one. */
static bool key_of_text(const clef__join *join, uint8_t key[32]) {
    char *options = clef__asprintf("joined %s", join->options);
    if (options) clef__cache_key(&join->device->info, join->text, options, key);
    clef__free(options);
    return options != NULL;
}

/* Notes what was compiled as one program. */
static void keep(const clef__join *join) {
    uint8_t key[32];
    size_t options = strlen(join->options) + 1, text = strlen(join->text);
    char *both = clef__asprintf("%s.%s", join->options, join->text);
    if (both && key_of_text(join, key)) {
        both[options - 1] = 0;
        clef__cache_store(join->device->ctx, key, CLEF__ENTRY_JOINED, both, options + text);
        for (int i = 0; i < join->n; i++) keep_part(join->device, join->key[i], key, join->number[i]);
    }
    clef__free(both);
}

/* ---- what is new ---- */

/* The texts of all its parts; none if they cannot be one. */
static void join_texts(clef__join *join) {
    int uses = 0;
    clef__text text = {0};
    clef__shared shared;
    const char *common = clef__embedded("common.h");
    for (int i = 0; i < join->n; i++) uses |= clef__code_uses(join->part[i]);
    clef__text_add(&text, "#define USES %d\n", uses);
    clef__text_append(&text, common);
    bool well = clef__shared_open(&shared, common);
    for (int i = 0; well && i < join->n; i++) {
        const clef__code *code = join->part[i];
        char *options = clef__asprintf("%s -DNAME=%s_%d", clef__code_asked(code), join->name, i);
        well = options && clef__part_put(&text, &shared,
                                         &(clef__part){.options = code->file ? clef__code_asked(code) : options,
                                                       .text = code->text ? code->text : "",
                                                       .file = code->file ? clef__embedded(code->file) : "",
                                                       .number = i});
        clef__free(options);
    }
    clef__shared_close(&shared);
    join->text = well ? text.data : NULL;
    if (!well) clef__free(text.data);
}

enum { TEXTS = 't', FILES = 'f', BOTH = 'b' };

/* By what codes are told apart that are not to be in one program: the sort, and then the options.  NULL without host memory.  A text that
   a plan generated may have a program's own expressions in it, which may not compile. */
static char *group_of(const clef__code *code) {
    clef__text group = {0};
    char sort = !code->file ? TEXTS : code->text ? BOTH : FILES;
    clef__text_put(&group, &sort, 1);
    clef__shared_options(&group, code->options);
    return group.data;
}

/* So many of them in one program. */
static void join_some(news *all, const int *which, int n, const char *options) {
    clef__join join = {.device = all->device, .name = all->name, .options = n > 1 ? clef__strdup(options) : NULL};
    for (int i = 0; i < n; i++) add_part(&join, all, which[i], i);
    if (join.options) join_texts(&join);
    if (join.text && new_join(all, join)) return;
    free_texts(&join);
    for (int i = 0; i < n; i++) leave_alone(all, which[i]);
    if (n == 1) keep_alone(all->device, all->key[which[0]]);
}

/* As few programs as may be, of about as many codes each. */
static void join_group(news *all, const int *which, int n, const char *group) {
    int most = *group == TEXTS ? CLEF__JOINED : CLEF__JOINED_FILES, programs = (n + most - 1) / most;
    for (int p = 0; p < programs; p++) {
        int begin = p * n / programs, end = (p + 1) * n / programs;
        join_some(all, which + begin, end - begin, group + 1);
    }
}

static void join_news(news *all) {
    char **group = clef__calloc((size_t)all->n + 1, sizeof *group);
    int *which = clef__alloc(((size_t)all->n + 1) * sizeof *which);
    for (int i = 0; group && which && i < all->n; i++) group[i] = group_of(all->code[all->which[i]]);
    for (int i = 0; i < all->n; i++) {
        char *same = group && which ? group[i] : NULL;
        int n = 0;
        for (int k = i; same && k < all->n; k++)
            if (all->which[k] >= 0 && group[k] && strcmp(group[k], same) == 0) {
                which[n++] = all->which[k];
                all->which[k] = -1;
            }
        if (n) join_group(all, which, n, same);
        else if (all->which[i] >= 0) leave_alone(all, all->which[i]);
    }
    for (int i = 0; group && i < all->n; i++) clef__free(group[i]);
    clef__free(group);
    clef__free(which);
}

clef__join *clef__codes_join(clef__device *device, clef__code *const *code, int n, const char *name) {
    news all = {.device = device,
                .name = name,
                .code = code,
                .key = clef__alloc((size_t)n * sizeof *all.key),
                .which = clef__alloc((size_t)n * sizeof *all.which)};
    clef__code **some = clef__alloc((size_t)n * sizeof *some);
    bool known = all.key && all.which && some;
    int many = 0;
    for (int i = 0; known && i < n; i++)
        if (!code[i]->file || remembers(device)) known = key_of(device, some[many] = code[i], all.key[many]), many++;
    all.code = some;
    all.end = &all.first;
    if (known) all.n = clef__programs_reserve(device, all.key, many, all.which);
    if (remembers(device)) recall(&all);
    join_news(&all);
    clef__free(some);
    clef__free(all.key);
    clef__free(all.which);
    return all.first;
}

/* ---- compiling ---- */

bool clef__join_is_new(const clef__join *join) { return !join->known && remembers(join->device); }

void clef__join_compile(const clef__join *join) {
    bool wrong = false;
    clef__program *program = clef__program_quietly(join->device, join->text, join->options, join->name, &wrong);
    for (int i = 0; i < join->n; i++)
        clef__code_have(join->part[i], clef__program_enter(join->device, join->key[i], program, join->number[i]));
    if (program && clef__join_is_new(join)) keep(join);
    for (int i = 0; i < join->n && wrong; i++) keep_alone(join->device, join->key[i]);
    if (!program) clef__log_line(join->device->ctx, CLEF_LOG_DEBUG, "program: %d codes do not compile as one", join->n);
    clef__program_release(join->device, program);
}

void clef__joins_free(clef__join *join) {
    for (clef__join *next; join; join = next) {
        next = join->next;
        free_texts(join);
        clef__free(join);
    }
}
