/* Makes Oclgrind interpret kernels nearly two times faster: LD_PRELOAD this, and set
   OCLGRIND_BUILD_OPTIONS="-O1 -flegacy-pass-manager".

   Without an optimiser every variable lies in memory, and each use of one is a load that Oclgrind checks; but what LLVM's optimiser
   makes by itself has instructions that Oclgrind 21.10 cannot interpret.  So here the optimiser, by LLVM's names for its lists of
   passes, is one pass alone: variables go into registers (mem2reg).  What this gives up: a variable that is set on some paths only
   counts as set.  Clang finds these in the source (cmake/check_kernels.sh). */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef void (*add_pass)(void *passes);

/* llvm::PassManagerBuilder::populateModulePassManager(llvm::legacy::PassManagerBase &) */
EXPORT void
populate_module(void *builder,
                void *passes) __asm__("_ZN4llvm18PassManagerBuilder25populateModulePassManagerERNS_6legacy15PassManagerBaseE");
/* llvm::PassManagerBuilder::populateFunctionPassManager(llvm::legacy::FunctionPassManager &) */
EXPORT void populate_function(void *builder, void *passes) __asm__(
    "_ZN4llvm18PassManagerBuilder27populateFunctionPassManagerERNS_6legacy19FunctionPassManagerE");

/* The pass comes from the LLVM that the caller uses, which the program itself does not see. */
void populate_module(void *builder, void *passes) {
    (void)builder;
    Dl_info caller;
    void *library = dladdr(__builtin_return_address(0), &caller) ? dlopen(caller.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = library ? dlsym(library, "LLVMAddPromoteMemoryToRegisterPass") : NULL;
    add_pass add;
    memcpy(&add, &symbol, sizeof add);
    if (add) add(passes);
    if (library) dlclose(library);
}

void populate_function(void *builder, void *passes) {
    (void)builder;
    (void)passes;
}
