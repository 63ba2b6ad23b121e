/* inside.h — which of at + i·step for i < count lie in [0, size): the first i, and one past the last. */
static int first_inside(int at, int step, int count) { return at >= 0 ? 0 : min((step - 1 - at) / step, count); }
static int end_inside(int at, int step, int count, int size) { return at >= size ? 0 : min((size - 1 - at) / step + 1, count); }
