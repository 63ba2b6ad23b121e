/* programs.h — runs a program and reads what it prints: its exit code, the number of lines, the first and the last. */
#ifndef CLEF_TEST_PROGRAMS_H
#define CLEF_TEST_PROGRAMS_H
#include <stdio.h>
#include <sys/wait.h>

typedef struct answer {
    int code; /* -1: a signal ended it */
    int lines;
    char first[1024], last[1024];
} answer;

/* What `command` (of the shell) prints on standard output. */
static inline answer answer_of(const char *command) {
    answer a = {.code = -1};
    FILE *out = popen(command, "r");
    if (!out) return a;
    for (; fgets(a.last, sizeof a.last, out); a.lines++)
        if (a.lines == 0) snprintf(a.first, sizeof a.first, "%s", a.last);
    int status = pclose(out);
    if (WIFEXITED(status)) a.code = WEXITSTATUS(status);
    return a;
}
#endif
