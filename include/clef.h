/* clef.h — all of Clef but the OpenCL interop (clef/opencl.h) and ranks by MPI (clef/mpi.h). */
#ifndef CLEF_H
#define CLEF_H
#include "clef/base.h"
#include "clef/context.h"
#include "clef/tensor.h"
#include "clef/pointwise.h" /* generated from cl/unary.def, cl/binary.def and cl/ternary.def */
#include "clef/ops.h"
#include "clef/group.h"
#include "clef/nn.h"
#include "clef/optim.h"
#include "clef/data.h"
#include "clef/parallel.h"
#include "clef/io.h"
#include "clef/text.h"
#include "clef/train.h"
#include "clef/language.h"
#include "clef/tune.h"
#endif
