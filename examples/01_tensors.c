/* 01_tensors.c — tensors, expressions and a gradient.
   Nothing is computed until a result is asked for; then all of it at once. */
#include <clef.h>
#include <stdio.h>

int main(void) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;

    const float points[] = {0, 1, 2, 3, 4, 5};
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_F32, points);
    clef_tensor *w = clef_require_grad(clef_keep(clef_full(ctx, CLEF_SHAPE(3, 2), CLEF_F32, 0.1)), true);

    clef_tensor *y = clef_tanh(clef_matmul(x, w));                /* [2,3]·[3,2] → [2,2] */
    clef_tensor *loss = clef_sum(clef_square(y), NULL, 0, false); /* Σ y² */
    clef_backward(loss);                                          /* adds the nodes of d loss / d w */

    clef_print(y, stdout);
    printf("loss %.6f\n", clef_item(loss));
    clef_print(clef_grad_of(w), stdout);

    if (clef_error_status(ctx)) return fprintf(stderr, "%s\n", clef_error(ctx)), clef_close(ctx), 1;

    /* A mistake is one line that names the op, the shapes and what would help; NULL passes through what follows. */
    clef_tensor *wrong = clef_relu(clef_matmul(x, x));
    printf("wrong is %s: %s\n", wrong ? "a tensor" : "NULL", clef_error(ctx));
    clef_close(ctx);
    return wrong != NULL;
}
