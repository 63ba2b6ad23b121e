/* 20_inverse.c — an inverse problem: which picture was blurred?
   What is trained is no layer's weight but the picture itself: a module without a forward function holds it, so that an optimizer takes
   it.  The loss compares its blurred form with the blurred picture that is known. */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 16 };

/* A mean of 3×3, weighted 1 2 1 in both directions. */
static clef_tensor *blur(clef_tensor *picture, clef_tensor *kernel) {
    return clef_conv2d(picture, kernel, CLEF_NONE, &(clef_conv2d_options){.padding = {1, 1}});
}

/* A ring. */
static void draw(float picture[SIDE * SIDE]) {
    for (int i = 0; i < SIDE * SIDE; i++) {
        int x = 2 * (i % SIDE) - SIDE + 1, y = 2 * (i / SIDE) - SIDE + 1, r = x * x + y * y;
        picture[i] = r > 40 && r < 150;
    }
}

static double error(clef_tensor *x, clef_tensor *truth) { return clef_item(clef_mse_loss(x, truth, NULL)); }

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    const clef_shape shape = CLEF_SHAPE(1, 1, SIDE, SIDE);
    const float weights[] = {1 / 16.f, 2 / 16.f, 1 / 16.f, 2 / 16.f, 4 / 16.f, 2 / 16.f, 1 / 16.f, 2 / 16.f, 1 / 16.f};
    float picture[SIDE * SIDE];
    draw(picture);
    clef_tensor *kernel = clef_keep(clef_from_host(ctx, CLEF_SHAPE(1, 1, 3, 3), CLEF_F32, weights));
    clef_tensor *truth = clef_keep(clef_from_host(ctx, shape, CLEF_F32, picture));
    clef_tensor *known = clef_keep(blur(truth, kernel));

    clef_module *sought = clef_module_new(ctx, "parameters", NULL, NULL);
    clef_module_add_parameter(sought, "picture", clef_copy(known));
    clef_tensor *x = clef_parameter(sought, "picture");
    clef_optimizer *adam = clef_adam(sought, &(clef_adam_options){.lr = 0.05});

    int steps = argc > 1 ? atoi(argv[1]) : 300;
    double before = error(x, truth);
    for (int step = 0; step < steps; step++) {
        clef_backward(clef_mse_loss(blur(x, kernel), known, NULL));
        clef_step(adam);
    }
    double after = error(x, truth);
    printf("mean squared error of the blurred picture %.4f, of the one that was found %.4f\n", before, after);
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    int failed = clef_error_status(ctx) || !(after < before / 4);
    clef_close(ctx);
    return failed;
}
