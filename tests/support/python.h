/* python.h — scripts of the tests, by the Python that CLEF_PYTHON names, else python3. */
#ifndef CLEF_TESTS_PYTHON_H
#define CLEF_TESTS_PYTHON_H
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static inline const char *python_name(void) {
    const char *python = getenv("CLEF_PYTHON");
    return python ? python : "python3";
}

/* Runs a script below tests/ with these arguments, quoted for a shell where need be; its exit status, 127 where there is no Python. */
static inline int python_run(const char *script, const char *arguments) {
    char command[2048];
    snprintf(command, sizeof command, "'%s' '%s/tests/%s' %s", python_name(), CLEF_TEST_SOURCE, script, arguments);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
#endif
