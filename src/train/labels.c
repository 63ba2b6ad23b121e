/* labels.c — after a loss that is no finite number: labels that are no class.

   On the device such a label makes the loss NaN (see clef_cross_entropy), so nobody looks at labels while all is well. */
#include "train/train_internal.h"
#include "clef/ops.h"

static bool is_whole(clef_dtype dtype) { return dtype == CLEF_I64 || dtype == CLEF_I32 || dtype == CLEF_U8; }

static bool is_bad(int64_t label, int64_t classes, const clef_loss_options *o) {
    return (label < 0 || label >= classes) && !(o->has_ignore_index && label == o->ignore_index);
}

bool clef__find_bad_label(clef_tensor *output, clef_tensor *target, const clef_loss_options *options, clef__bad_label *found) {
    if (!output || !target || !is_whole(clef_tensor_dtype(target)) || clef_tensor_shape(output).rank < 2) return false;
    int64_t n = clef_numel(target), items = clef_tensor_shape(target).rank ? clef_tensor_shape(target).dim[0] : 1;
    int rank = clef_tensor_shape(output).rank;
    int64_t classes = clef_tensor_shape(output).dim[options->classes_last ? rank - 1 : 1], i = 0,
            *label = n > 0 ? clef__alloc((size_t)n * sizeof *label) : NULL;
    if (!label || clef_read(clef_to(target, CLEF_I64), label, (size_t)n * sizeof *label)) i = n;
    while (i < n && !is_bad(label[i], classes, options)) i++;
    if (i < n) *found = (clef__bad_label){.label = label[i], .item = i / (n / items), .classes = classes};
    clef__free(label);
    return i < n;
}
