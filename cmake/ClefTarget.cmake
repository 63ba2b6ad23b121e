# Flags and helpers shared by the library, the tool, the examples and the benchmarks.

# C11 with POSIX, warnings, sanitizers.  STRICT adds the warnings that our own files keep and test macros do not.
function(clef_c_target target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "STRICT" "" "")
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  if(UNIX)
    target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
  endif()
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra>)
    if(arg_STRICT)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-Wpedantic -Wshadow -Wstrict-prototypes
        -Wmissing-prototypes -Wvla>)
    endif()
    # GCC 12's -O3 (loop distribution) loses stores in loops that fill structs; host code gains nothing from it.
    target_compile_options(${target} PRIVATE $<$<AND:$<C_COMPILER_ID:GNU>,$<CONFIG:Release>>:-O2>)
    if(CLEF_WERROR)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-Werror>)
      # Guesses of GCC's optimiser that change with every release stay warnings.
      target_compile_options(${target} PRIVATE $<$<C_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized
        -Wno-error=format-truncation -Wno-error=stringop-overflow -Wno-error=array-bounds>)
    endif()
    if(CLEF_SANITIZE)
      set(flags -fsanitize=${CLEF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
      # Compiles faster, and reports name lines as well.
      target_compile_options(${target} PRIVATE ${flags} "$<$<NOT:$<CONFIG:Debug>>:-O1;-g1>")
      target_link_options(${target} PRIVATE ${flags})
    endif()
    if(CLEF_FUZZ)
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  endif()
endfunction()

# An installed program finds the library beside it, wherever the prefix was moved to.
function(clef_relative_rpath target)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  if(APPLE)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "@loader_path/${up}")
  elseif(UNIX)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${up}")
  endif()
endfunction()

# One program of public headers only, in <build>/<folder>/.
function(clef_program target source folder)
  add_executable(${target} ${source})
  clef_c_target(${target} STRICT)
  get_filename_component(name ${source} NAME_WE)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${folder})
  if(source MATCHES "\\.cpp$")
    set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
      target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic $<$<BOOL:${CLEF_WERROR}>:-Werror>)
    endif()
  endif()
  target_link_libraries(${target} PRIVATE ${clef_library} Threads::Threads ${CLEF_MATH})
  file(STRINGS ${source} own_opencl REGEX "clef/opencl\\.h")
  if(own_opencl)
    target_link_libraries(${target} PRIVATE OpenCL::OpenCL)
  endif()
endfunction()

function(clef_example source)
  get_filename_component(name ${source} NAME_WE)
  clef_program(example_${name} ${source} examples)
  if(CLEF_TESTS)
    add_test(NAME examples/${name} COMMAND example_${name} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/examples)
    clef_test_properties(examples/${name} ${source} examples)
  endif()
endfunction()

# One for mpirun; its test has two processes.
function(clef_mpi_example source)
  get_filename_component(name ${source} NAME_WE)
  clef_program(example_${name} ${source} examples)
  target_link_libraries(example_${name} PRIVATE clef_mpi)
  if(CLEF_TESTS)
    add_test(NAME examples/${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/tests/mpi/on_ranks.sh "${MPIEXEC_EXECUTABLE}" 2
      $<TARGET_FILE:example_${name}> WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/examples)
    clef_test_properties(examples/${name} ${source} examples)
  endif()
endfunction()

function(clef_bench source)
  get_filename_component(name ${source} NAME_WE)
  clef_program(${name} ${source} bench)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR}/src/tools)
endfunction()

# Environment, skip code, label and timeout of a test.  A source may say more about itself in a comment line
#     ctest: labels=slow,data cost=60 serial apart plain cached together
# cost: seconds with nothing compiled yet, roughly; what costs most starts first, so that no long test runs alone at the end.
# apart: its many plans have single kernels in common, which are to be compiled once.
# plain: what it asks of kernels does not depend on how well they are compiled, so pocl (others do not listen) is to do it fast.
# cached: with Clef's cache, as users have it.
# together: all tests of the program run in one process (clef_test_together).
function(clef_test_properties test source label)
  set(labels ${label})
  set(cost 1)
  set(serial OFF)
  file(STRINGS ${source} said REGEX "ctest: ")
  if(said MATCHES "labels=([a-z_,]+)")
    string(REPLACE "," ";" more "${CMAKE_MATCH_1}")
    list(APPEND labels ${more})
  endif()
  if(said MATCHES "cost=([0-9]+)")
    set(cost ${CMAKE_MATCH_1})
  endif()
  if(said MATCHES "ctest: .*serial")
    set(serial ON)
  endif()
  set(environment ${clef_test_environment})
  if(said MATCHES "ctest: .*apart")
    list(APPEND environment CLEF_JOIN=0)
  endif()
  if(said MATCHES "ctest: .*plain")
    list(APPEND environment ${clef_compile_fast})
  endif()
  if(said MATCHES "ctest: .*cached")
    list(APPEND environment CLEF_CACHE=1)
  endif()
  set_tests_properties(${test} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 77 TIMEOUT ${clef_test_timeout} COST ${cost} RUN_SERIAL ${serial}
    ENVIRONMENT "${environment}")
  # After a test has ended well gcc's leak checker may crash itself, in one of a hundred that have many threads: it takes a block of a
  # thread's variables, by its address, for one that begins with its size.
  if(CLEF_SANITIZE)
    set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "LeakSanitizer has encountered a fatal error")
  endif()
endfunction()

# Ends what hangs; nothing that works comes near it, on a loaded machine either.
set(clef_test_timeout 2400)

set(clef_compile_fast POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable)

# Tests keep out of the user's cache, and without one: pocl's compiler would make twice as many kernels as run for what is kept, and
# it has a cache of its own.  Those that are about Clef's cache ask for one.  None starts a second process that compiles, as others use the
# cores.  Criterion names the cases that it skips, which check.sh collects.
set(clef_test_environment CLEF_CACHE=0 CLEF_HELPER=0 "CLEF_CACHE_DIR=${CMAKE_CURRENT_BINARY_DIR}/test-cache" CRITERION_VERBOSITY_LEVEL=1)
# pocl links each kernel by `ld`, some 20,000 in all: gold takes two thirds of the time of the usual one for so little, and a third of that
# without libraries that the kernel does not need (tests/support/link_kernel.c).  Never instrumented, as it is all that others wait for.
find_program(CLEF_FAST_LINKER ld.gold)
if(CLEF_TESTS AND CLEF_FAST_LINKER)
  add_executable(link_kernel tests/support/link_kernel.c)
  set_target_properties(link_kernel PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF OUTPUT_NAME ld
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/linker)
  target_compile_definitions(link_kernel PRIVATE CLEF_TEST_LINKER="${CLEF_FAST_LINKER}")
  list(APPEND clef_test_environment "COMPILER_PATH=${CMAKE_CURRENT_BINARY_DIR}/linker")
endif()
if(CLEF_SANITIZE)
  # TSan takes what stands before a library's thread-local block for a header of an old glibc's wherever the address ends in 0x010.  Garbage
  # there is a range that it cannot map, and the process dies.  These blocks come from malloc now, which TSan watches anyway.
  list(APPEND clef_test_environment
    "ASAN_OPTIONS=detect_leaks=1:handle_abort=1:fast_unwind_on_malloc=1"
    "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/cmake/leaks.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/cmake/races.supp:halt_on_error=1:intercept_tls_get_addr=0")
  # Without drivers that are not tested: Mesa's older one leaks, on some machines, in a library that is gone when leaks are counted, so
  # that no suppression can name it.
  file(GLOB clef_pocl /etc/OpenCL/vendors/pocl*.icd)
  if(clef_pocl)
    list(APPEND clef_test_environment "OCL_ICD_VENDORS=${clef_pocl}" "OCL_ICD_FILENAMES=${clef_pocl}")
  endif()
endif()
