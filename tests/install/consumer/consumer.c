/* consumer.c — a program of its own that uses the installed library: y = sum(x²), dy/dx = 2x. */
#include <clef.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    char built[32];
    snprintf(built, sizeof built, "%d.%d.%d", CLEF_VERSION_MAJOR, CLEF_VERSION_MINOR, CLEF_VERSION_PATCH);
    if (strcmp(built, clef_version()) != 0) {
        fprintf(stderr, "headers say %s, the library %s\n", built, clef_version());
        return 1;
    }
    clef_context *ctx = clef_open(NULL);
    if (!ctx) {
        printf("%s\n", clef_error(NULL));
        return clef_error_status(NULL) == CLEF_NO_DEVICE ? 0 : 1;
    }
    const float values[3] = {1, 2, 3};
    float gradient[3] = {0, 0, 0};
    clef_tensor *x = clef_keep(clef_require_grad(clef_from_host(ctx, CLEF_SHAPE(3), CLEF_F32, values), true));
    clef_tensor *y = clef_sum(clef_mul(x, x), NULL, 0, false);
    clef_backward(y);
    double sum = clef_item(y);
    clef_read(clef_grad_of(x), gradient, sizeof gradient);
    if (clef_error_status(ctx) != CLEF_OK) fprintf(stderr, "%s\n", clef_error(ctx));
    clef_close(ctx);
    printf("Clef %s: sum of squares %g, gradient %g %g %g\n", clef_version(), sum, gradient[0], gradient[1], gradient[2]);
    return !(sum == 14 && gradient[0] == 2 && gradient[1] == 4 && gradient[2] == 6);
}
