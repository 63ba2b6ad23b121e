/* epilogue_ops.h — what a kernel's store may do with its results (epilogue.h), as bits in their order; the host reads them too. */
#define EPILOGUE_BIAS 1 /* of a product or a convolution, whose op has it; the others are ops of their own */
#define EPILOGUE_SCALE 2
#define EPILOGUE_ADD 4
#define EPILOGUE_GATE 8
#define EPILOGUE_RELU 16
#define EPILOGUE_LEAK 32
