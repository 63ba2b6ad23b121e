/* epilogue_ops.h — what a kernel's store may do with its results (epilogue.h), as bits in their order; the host reads them too. */
#define EPILOGUE_SCALE 1
#define EPILOGUE_ADD 2
#define EPILOGUE_GATE 4
#define EPILOGUE_RELU 8
#define EPILOGUE_LEAK 16
