/* Directories that Hugging Face's transformers wrote, with tokenizers of byte pairs: clef generate writes the text that transformers
   would, and clef eval gives their loss.  hugging_face.py makes them; $CLEF_PYTHON names the interpreter (python3). */
#include <stdio.h>
#include <stdlib.h>
#define MUST(condition) ((condition) ? (void)0 : (perror(#condition), exit(1)))
#include "support/python.h"
#include "tools/tool_support.h"
#include <math.h>

#define PROMPT "\"it's die Welt, \""
static int failed;

static int run_python(void) {
    char arguments[600];
    snprintf(arguments, sizeof arguments, "'%s'", workplace);
    return python_run("tools/hugging_face.py", arguments);
}

static void expect(int holds, const char *what, const said *s) {
    if (holds) return;
    printf("FAILED: %s: exit code %d, \"%s\", %s\n", what, s->code, s->out, s->err);
    failed++;
}

static void try_model(const char *model) {
    static char want[4096], numbers[128];
    char name[64], line[256];
    int tokens = 0, targets = 0;
    double loss = 0;
    snprintf(name, sizeof name, "%s/greedy", model);
    slurp(name, want, sizeof want);
    snprintf(name, sizeof name, "%s/expected", model);
    slurp(name, numbers, sizeof numbers);
    MUST(sscanf(numbers, "%d %lf %d", &tokens, &loss, &targets) == 3);
    snprintf(line, sizeof line, "generate --model %s --prompt " PROMPT " --temperature 0 --tokens %d --quiet", model, tokens);
    const said *s = clef("", line);
    if (s->code == 77) printf("skipped: %s", s->err), exit(77);
    expect(s->code == 0 && !strcmp(s->out, want), line, s);
    snprintf(line, sizeof line, "eval --data text:text --weights %s --whole --json", model);
    s = clef("", line);
    const char *at = strstr(s->out, "\"loss\":"), *count = strstr(s->out, "\"tokens\":");
    expect(at && fabs(strtod(at + 7, NULL) - loss) < 1e-4 * loss, line, s);
    expect(count && atoi(count + 9) == targets, "tokens", s);
}

int main(void) {
    enter_workplace();
    int code = run_python();
    if (code == 127) printf("skipped: there is no Python\n"), code = 77;
    if (code == 0) try_model("gpt2"), try_model("llama");
    leave_workplace();
    return code ? code : failed > 0;
}
