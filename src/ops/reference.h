/* reference.h — one element of a product or of a gradient, by its definition: what clef_op.element says of these ops. */
#ifndef CLEF_REFERENCE_H
#define CLEF_REFERENCE_H
#include "graph/graph.h"

double clef__matmul_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__linear_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_backward_data_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__conv2d_backward_weight_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
double clef__max_pool2d_backward_element(const clef__node *node, const clef__numbers *in, const int64_t *at);
#endif
