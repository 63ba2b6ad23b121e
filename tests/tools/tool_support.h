/* tool_support.h — starts the clef command and catches what it says.  A plain program defines MUST (what to do about a
   condition that does not hold) before including it and does without Criterion. */
#ifndef CLEF_TESTS_TOOL_SUPPORT_H
#define CLEF_TESTS_TOOL_SUPPORT_H
#ifndef MUST
#include <criterion/criterion.h>
#define MUST(condition) cr_assert(condition)
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct said {
    int code;
    char out[65536], err[8192];
} said;

static char workplace[64]; /* of one test; the commands run in it */

static inline void enter_workplace(void) {
    snprintf(workplace, sizeof workplace, "/tmp/clef-tool-XXXXXX");
    MUST(mkdtemp(workplace));
}

static inline void leave_workplace(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", workplace);
    MUST(system(command) == 0);
}

static inline void slurp(const char *name, char *text, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", workplace, name);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    text[n] = 0;
    if (file) fclose(file);
}

/* Runs `[environment] clef arguments`; the result is good until the next call. */
static inline const said *clef(const char *environment, const char *arguments) {
    static said s;
    char command[2048];
    snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >out 2>err </dev/null", workplace, environment, CLEF_TEST_TOOL,
             arguments);
    int status = system(command);
    s.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    slurp("out", s.out, sizeof s.out);
    slurp("err", s.err, sizeof s.err);
    return &s;
}

static inline int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* The number behind "key": in the last line that has it; NaN-like -1 if there is none. */
static inline double number_of(const char *text, const char *key) {
    char quoted[64];
    double value = -1;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    for (const char *p = text; (p = strstr(p, quoted)); p++) value = strtod(p + strlen(quoted), NULL);
    return value;
}
#endif
