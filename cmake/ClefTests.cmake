# The tests.  tests/<room>/test_*.c are Criterion programs, tests/<room>/main_*.c plain ones (the only ones that run under
# sanitizers), tests/fuzz/fuzz_*.c libFuzzer targets.  Labels: `kernels` for tests/kernels, else `unit`; what a source adds
# with a `ctest:` line (see clef_test_properties); those of the matrix (see clef_test_on).

if(PKG_CONFIG_FOUND)
  pkg_check_modules(CRITERION QUIET IMPORTED_TARGET criterion)
endif()
if(NOT CRITERION_FOUND AND NOT CLEF_SANITIZE AND NOT CLEF_FUZZ)
  message(STATUS "Clef: most tests are left out, as Criterion was not found (Debian: libcriterion-dev pkg-config)")
endif()

# In CLBlast's place, for what a true one does not do on demand.
add_library(fake_clblast MODULE tests/support/fake_clblast.c)
clef_c_target(fake_clblast)
set_target_properties(fake_clblast PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(fake_clblast PRIVATE OpenCL::OpenCL)

# Makes pocl take the machine for one with less: LD_PRELOAD with PRETEND_CPU=avx2 or sse.  Never instrumented, as it is loaded first.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  add_library(pretend_cpu MODULE tests/support/pretend_cpu.c)
  set_target_properties(pretend_cpu PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
  target_link_libraries(pretend_cpu PRIVATE ${CMAKE_DL_LIBS})
endif()

# Preloaded, it lets writes fail beneath a directory.
add_library(file_faults MODULE tests/support/file_faults.c)
clef_c_target(file_faults)
set_target_properties(file_faults PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(file_faults PRIVATE ${CMAKE_DL_LIBS})

# Preloaded, it lets one OpenCL call of a whole program fail.
add_library(call_faults MODULE tests/support/call_faults.c)
clef_c_target(call_faults)
set_target_properties(call_faults PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_include_directories(call_faults PRIVATE include src tests)
target_link_libraries(call_faults PRIVATE clef_dependencies OpenCL::OpenCL ${CMAKE_DL_LIBS})

# Preloaded under Oclgrind, for what it takes for uninitialised wrongly.
add_library(whole_writes MODULE tests/support/whole_writes.c)
clef_c_target(whole_writes)
set_target_properties(whole_writes PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(whole_writes PRIVATE OpenCL::OpenCL ${CMAKE_DL_LIBS})

# Preloaded under Oclgrind, it makes it faster.
add_library(registers MODULE tests/support/registers.c)
clef_c_target(registers)
set_target_properties(registers PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(registers PRIVATE ${CMAKE_DL_LIBS})

# Preloaded, it lets commands begin late.
add_library(delays MODULE tests/support/delays.c)
clef_c_target(delays)
set_target_properties(delays PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(delays PRIVATE OpenCL::OpenCL Threads::Threads ${CMAKE_DL_LIBS})

# Preloaded, it makes devices slower.
add_library(slow_device MODULE tests/support/slow_device.c)
clef_c_target(slow_device)
set_target_properties(slow_device PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(slow_device PRIVATE OpenCL::OpenCL Threads::Threads ${CMAKE_DL_LIBS})

# Preloaded, it refuses to queue the end of a mapping before its begin has run.
add_library(early_unmaps MODULE tests/support/early_unmaps.c)
clef_c_target(early_unmaps)
set_target_properties(early_unmaps PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(early_unmaps PRIVATE OpenCL::OpenCL Threads::Threads ${CMAKE_DL_LIBS})

# A program that may look into the rooms: the static library has every symbol.
function(clef_test_program target source)
  add_executable(${target} ${source})
  clef_c_target(${target})
  if(CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang)$")
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>) # compiles in two thirds of the time
    target_compile_options(${target} PRIVATE $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-alloc-size-larger-than>) # it sees less then
  endif()
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(room ${source} DIRECTORY)
  get_filename_component(room ${room} NAME)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests/${room})
  target_include_directories(${target} PRIVATE src tests cl)
  target_compile_definitions(${target} PRIVATE CLEF_TEST_SOURCE="${CMAKE_CURRENT_SOURCE_DIR}"
    CLEF_TEST_BUILD="${CMAKE_CURRENT_BINARY_DIR}" CLEF_TEST_FAKE_CLBLAST="$<TARGET_FILE:fake_clblast>"
    CLEF_TEST_FILE_FAULTS="$<TARGET_FILE:file_faults>" CLEF_TEST_CALL_FAULTS="$<TARGET_FILE:call_faults>"
    CLEF_TEST_DELAYS="$<TARGET_FILE:delays>")
  add_dependencies(${target} fake_clblast file_faults call_faults delays)
  # The static library looks for it beside the program.
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests/${room})
  file(CREATE_LINK ${CMAKE_CURRENT_BINARY_DIR}/clef-probe ${CMAKE_CURRENT_BINARY_DIR}/tests/${room}/clef-probe SYMBOLIC)
  if(TARGET pretend_cpu)
    add_dependencies(${target} pretend_cpu)
    target_compile_definitions(${target} PRIVATE CLEF_TEST_PRETEND_CPU="$<TARGET_FILE:pretend_cpu>")
  else()
    target_compile_definitions(${target} PRIVATE CLEF_TEST_PRETEND_CPU="")
  endif()
  target_link_libraries(${target} PRIVATE clef_static clef_dependencies ${CLEF_LIBRARIES})
  # Some tests start the tool, as users do.
  if(TARGET clef_tool)
    add_dependencies(${target} clef_tool)
    target_compile_definitions(${target} PRIVATE CLEF_TEST_TOOL="${CMAKE_BINARY_DIR}/clef")
  endif()
endfunction()

function(clef_room_label source out)
  if(source MATCHES "/tests/kernels/")
    set(${out} kernels PARENT_SCOPE)
  else()
    set(${out} unit PARENT_SCOPE)
  endif()
endfunction()

if(CLEF_FUZZ)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
  set(CLEF_FUZZ_SECONDS 10 CACHE STRING "How long each fuzz target runs as a test")
  foreach(source IN LISTS fuzz_sources)
    get_filename_component(name ${source} NAME_WE)
    clef_test_program(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set(corpus ${CMAKE_CURRENT_BINARY_DIR}/corpus/${name})
    file(MAKE_DIRECTORY ${corpus})
    if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${name})
      list(APPEND corpus ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    endif()
    add_test(NAME fuzz/${name} COMMAND ${name} -max_total_time=${CLEF_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
      -print_final_stats=0 -verbosity=0 ${corpus})
    clef_test_properties(fuzz/${name} ${source} fuzz)
  endforeach()
  return()
endif()

# ---- the matrix: a test's program once more, on another implementation of OpenCL or with kernels as for another device ----

set(clef_size_small 1)
set(clef_size_tiny 2)
set(clef_size_least 3)
set(clef_widths cpu_avx512 cpu_avx2 cpu minimal) # profiles of 16, 8, 4 float lanes, and the one that every device can be given

# clef_test_on(WHERE SIZE TEST TARGET SOURCE [BRIEF | WHOLE] [FAST]) registers TEST as WHERE/TEST, or WHERE-whole/TEST.
# WHERE: an implementation (rusticl, oclgrind, intel), a profile (on the usual device), or both (rusticl-gpu).
# SIZE: full; small: small shapes; tiny: few kernels too; least: a share of those.
# BRIEF: stands in for a WHOLE one; cmake/check.sh runs the former, check.sh --all the latter.  FAST: pocl is to compile fast.
# Labels: portability, WHERE (check.sh leaves out the profile that the machine has anyway), brief or whole.
function(clef_test_on where size test target source)
  cmake_parse_arguments(PARSE_ARGV 5 arg "BRIEF;WHOLE;FAST" "" "")
  string(REGEX MATCH "^(rusticl|oclgrind|intel)" driver "${where}")
  string(REGEX REPLACE "^(rusticl|oclgrind|intel)-?" "" profile "${where}")
  set(environment)
  set(labels portability ${where})
  if(driver)
    list(APPEND environment CLEF_CACHE=1) # what several tests use is compiled once
  else()
    set(driver pocl)
  endif()
  if(profile)
    list(APPEND environment CLEF_PROFILE=${profile})
  endif()
  if(NOT size STREQUAL "full")
    list(APPEND environment CLEF_TEST_SMALL=${clef_size_${size}})
  endif()
  if(arg_FAST)
    list(APPEND environment ${clef_compile_fast})
  endif()
  if(TARGET pretend_cpu)
    list(APPEND environment CLEF_TEST_PRETEND_CPU=$<TARGET_FILE:pretend_cpu>)
  endif()
  if(driver STREQUAL "oclgrind")
    add_dependencies(${target} whole_writes registers)
    list(APPEND environment CLEF_TEST_WHOLE_WRITES=$<TARGET_FILE:whole_writes>)
    # Not where Clang does not see the kernels (cmake/check_kernels.sh), as plans write them; nor where vectors in registers are first
    # written in part (cl/transpose.h), which ends Oclgrind 21.10.
    if(NOT arg_WHOLE AND NOT "${where}/${test}" MATCHES "^oclgrind(-cpu/|/kernels/test_(pointwise|custom|tile)$)")
      list(APPEND environment CLEF_TEST_REGISTERS=$<TARGET_FILE:registers>)
    endif()
  endif()
  set(name ${where}/${test})
  if(arg_WHOLE)
    list(APPEND labels whole)
    list(APPEND environment CLEF_TEST_WHOLE=1)
    set(name ${where}-whole/${test})
  elseif(arg_BRIEF)
    list(APPEND labels brief)
  endif()
  add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/cmake/on_driver.sh ${driver} $<TARGET_FILE:${target}>)
  clef_test_properties(${name} ${source} portability)
  set_property(TEST ${name} APPEND PROPERTY LABELS ${labels})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${environment})
endfunction()

# At every width in full for check.sh --all.  For check.sh small and compiled fast: test_matmul, test_conv and main_ops at every width, the
# other programs with 16 and 4 lanes or with 8 and minimal, as the hash of their names says, so that a new test moves no other.
function(clef_test_at_widths test target source)
  set(brief cpu_avx512 cpu)
  string(MD5 hash ${test})
  if(test MATCHES "^kernels/(test_(matmul|conv)|main_ops)$")
    set(brief ${clef_widths})
  elseif(hash MATCHES "^[0-7]")
    set(brief cpu_avx2 minimal)
  endif()
  foreach(profile IN LISTS clef_widths)
    if(profile IN_LIST brief)
      clef_test_on(${profile} small ${test} ${target} ${source} BRIEF FAST)
    endif()
    clef_test_on(${profile} full ${test} ${target} ${source} WHOLE)
  endforeach()
endfunction()

# A program of kernels on another implementation.  check.sh leaves out those whose kernels it tries there in another way: norms of short
# rows are alike in both profiles, test_tile has a GPU's products, the GPU's losses have softmax's rows.  It also leaves out what takes
# long on one of rusticl (which compiles slowly) and Oclgrind (which interprets), where the other one takes a fraction of the time; and
# epilogues on rusticl, as both take long.
set(clef_only_whole rusticl/kernels/test_softmax rusticl-gpu/kernels/test_softmax rusticl/kernels/test_loss rusticl-gpu/kernels/test_norm
  rusticl-gpu/kernels/test_matmul)
foreach(slow attention autocast epilogue expectations orders)
  list(APPEND clef_only_whole rusticl/kernels/test_${slow})
endforeach()
foreach(slow index matrix prologue recurrent sort stored winograd)
  list(APPEND clef_only_whole oclgrind/kernels/test_${slow})
endforeach()
function(clef_test_on_driver where test target source)
  clef_test_on(${where} tiny ${test} ${target} ${source} WHOLE)
  if(NOT "${where}/${test}" IN_LIST clef_only_whole)
    clef_test_on(${where} least ${test} ${target} ${source} BRIEF)
  endif()
endfunction()

function(clef_test_at_widths_in_full test target source)
  foreach(profile IN LISTS clef_widths)
    clef_test_on(${profile} full ${test} ${target} ${source} WHOLE)
  endforeach()
endfunction()

# ---- the plain programs ----

# What the tests with the label `threads` need: check.sh builds no more with ThreadSanitizer.
add_custom_target(thread_tests)
add_dependencies(thread_tests clef_probe)
if(TARGET link_kernel)
  add_dependencies(thread_tests link_kernel)
endif()
function(clef_thread_test target source)
  file(STRINGS ${source} said REGEX "ctest: .*labels=[a-z_,]*threads")
  if(said)
    add_dependencies(thread_tests ${target})
  endif()
endfunction()

file(GLOB plain_sources CONFIGURE_DEPENDS tests/*/main_*.c)
list(FILTER plain_sources EXCLUDE REGEX "/tests/mpi/")
foreach(source IN LISTS plain_sources)
  get_filename_component(name ${source} NAME_WE)
  # Whole trainings, a loader layer, kernels that leave their memory: too long, or not made, for instrumented builds.
  if(CLEF_SANITIZE AND name MATCHES "^main_(contract|small_devices|mutants|quiet)$")
    continue()
  endif()
  get_filename_component(room ${source} DIRECTORY)
  get_filename_component(room ${room} NAME)
  set(target ${room}_${name})
  set(test ${room}/${name})
  clef_test_program(${target} ${source})
  clef_thread_test(${target} ${source})
  add_test(NAME ${test} COMMAND ${target})
  clef_room_label(${source} label)
  clef_test_properties(${test} ${source} ${label})
  if(CLEF_SANITIZE MATCHES "address")
    if(test MATCHES "^(kernels/main_ops|optim/main_training)$")
      clef_test_at_widths(${test} ${target} ${source})
    elseif(test MATCHES "^(kernels/.*|plan/.*|train/main_fit|runtime/main_(faults|runtime))$")
      clef_test_at_widths_in_full(${test} ${target} ${source})
    endif()
  endif()
endforeach()
include(ClefMpiTests)
if(CLEF_SANITIZE)
  return()
endif()
# Programs over several devices once more, with all that is queued beginning late; the random ones also with copies between parts of one
# CPU.
function(clef_test_late test name)
  add_test(NAME ${test} COMMAND plan_${name})
  clef_test_properties(${test} tests/plan/${name}.c unit)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    "LD_PRELOAD=$<TARGET_FILE:delays>" CLEF_TEST_DELAY=all CLEF_FUZZ_GRAPHS=4 ${ARGN})
endfunction()
clef_test_late(delays/plan/main_late_copies main_late_copies)
clef_test_late(delays/plan/main_device_fuzz main_device_fuzz)
clef_test_late(delays/plan/main_device_faults main_device_faults)
clef_test_late(delays-copies/plan/main_device_fuzz main_device_fuzz CLEF_ZERO_COPY=0)
# Devices of unequal speed; without the layer the program tries the rule alone.
add_test(NAME slow/group/main_uneven COMMAND group_main_uneven)
clef_test_properties(slow/group/main_uneven tests/group/main_uneven.c unit)
add_dependencies(group_main_uneven slow_device)
set_property(TEST slow/group/main_uneven APPEND PROPERTY ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:slow_device>")
# A driver with which the host cannot visit memory beside the kernels: a pretended one, and one that is.
add_test(NAME early-unmaps/group/main_failures COMMAND group_main_failures)
clef_test_properties(early-unmaps/group/main_failures tests/group/main_failures.c unit)
add_dependencies(group_main_failures early_unmaps)
set_property(TEST early-unmaps/group/main_failures APPEND PROPERTY ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:early_unmaps>")
clef_test_on(rusticl small group/main_failures group_main_failures tests/group/main_failures.c)
# Every row of mutants.def; main_mutants alone takes some.
add_test(NAME kernels/main_mutants_all COMMAND kernels_main_mutants all)
clef_test_properties(kernels/main_mutants_all tests/kernels/main_mutants.c kernels)
set_property(TEST kernels/main_mutants_all APPEND PROPERTY LABELS whole)
set_property(TEST kernels/main_mutants APPEND PROPERTY LABELS brief)
set_tests_properties(kernels/main_mutants_all PROPERTIES COST 1000)

# ---- the Criterion programs ----

# Of kernels, and of what says `together` in a `ctest:` line, all tests of a program run in one process (tests/support/together.h).
function(clef_test_together target source room)
  file(STRINGS ${source} said REGEX "ctest: .*together")
  if(said OR room STREQUAL "kernels")
    target_compile_definitions(${target} PRIVATE CLEF_TESTS_TOGETHER _GNU_SOURCE)
  endif()
endfunction()

if(CRITERION_FOUND)
  file(GLOB criterion_sources CONFIGURE_DEPENDS tests/*/test_*.c)
  foreach(source IN LISTS criterion_sources)
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(room ${source} DIRECTORY)
    get_filename_component(room ${room} NAME)
    set(target ${room}_${name})
    set(test ${room}/${name})
    clef_test_program(${target} ${source})
    target_link_libraries(${target} PRIVATE PkgConfig::CRITERION)
    clef_test_together(${target} ${source} ${room})
    add_test(NAME ${test} COMMAND ${target})
    clef_room_label(${source} label)
    clef_test_properties(${test} ${source} ${label})
    if(room STREQUAL "kernels")
      clef_test_at_widths(${test} ${target} ${source})
      foreach(driver rusticl oclgrind intel)
        clef_test_on_driver(${driver} ${test} ${target} ${source})
      endforeach()
    elseif(room MATCHES "^(graph|plan|nn|optim|train)$")
      clef_test_at_widths_in_full(${test} ${target} ${source})
    endif()
    # Intel's compiler takes more than a minute for the kernels of some of these, which the kernels' own tests try there.
    if(test MATCHES "^(nn/test_(elsewhere|generator|language|place)|plan/test_(library|tuning))$")
      clef_test_on(intel small ${test} ${target} ${source} WHOLE)
    elseif(room MATCHES "^(plan|nn)$")
      clef_test_on(intel small ${test} ${target} ${source})
    endif()
    # As for a GPU: work-groups of 64, one vector or tile per work-item, narrow tiles.  No GPU's compiler is tried here.
    if(test MATCHES "^kernels/test_(matmul|conv|epilogue|prologue|pool|index|movement|tuned)$")
      clef_test_on(gpu small ${test} ${target} ${source} FAST)
    endif()
    # Rows that a work-group shares: pocl's optimizer may take stores of one work-item for those of several, so it must be at work.
    if(test MATCHES "^kernels/test_(reduce|sums|softmax|norm|loss)$")
      clef_test_on(gpu small ${test} ${target} ${source})
      clef_test_on_driver(rusticl-gpu ${test} ${target} ${source})
    endif()
    # Intel's compiler knows shuffles, for a CPU too.
    if(test STREQUAL "kernels/test_shuffle")
      clef_test_on(intel-gpu small ${test} ${target} ${source})
      set_property(TEST intel-gpu/${test} APPEND PROPERTY ENVIRONMENT CLEF_TEST_SHUFFLE=1)
    endif()
    # Rusticl gives a CPU and Oclgrind a GPU: products with the other one's kernels too.
    if(test MATCHES "^kernels/test_(matmul|conv)$")
      clef_test_on_driver(rusticl-gpu ${test} ${target} ${source})
      clef_test_on_driver(oclgrind-cpu ${test} ${target} ${source})
    endif()
  endforeach()
  if(TARGET tools_test_plan) # preloads it into the command
    add_dependencies(tools_test_plan slow_device)
  endif()
endif()

# ---- checks of the tree itself ----
if(SH)
  add_test(NAME frame/rooms COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_rooms.sh ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/format COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_format.sh ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/rooms_catch COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/rooms_catch.sh
    ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/kernel_syntax COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_kernels.sh
    ${CMAKE_CURRENT_SOURCE_DIR}/cl)
  add_test(NAME frame/on_driver_catch COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/on_driver_catch.sh
    ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/ptx_catch COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/ptx_catch.sh
    ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/autocast COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/autocast.sh ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME frame/generators COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/generators.sh
    ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER})
  add_test(NAME frame/headers_cxx COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/headers_cxx.sh
    $<IF:$<BOOL:${CMAKE_CXX_COMPILER}>,${CMAKE_CXX_COMPILER},c++> "$<JOIN:${MPI_C_INCLUDE_DIRS},:>"
    ${CMAKE_CURRENT_SOURCE_DIR}/include ${generated_include})
  add_test(NAME frame/listings COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/listings.sh
    ${CMAKE_CURRENT_SOURCE_DIR} ${generated_include} ${CMAKE_C_COMPILER} $<$<TARGET_EXISTS:clef_shared>:$<TARGET_FILE:${clef_library}>>)
  set(frame_tests frame/headers_cxx frame/listings frame/rooms frame/format frame/rooms_catch frame/on_driver_catch frame/ptx_catch frame/kernel_syntax frame/autocast frame/generators)
  if(TARGET clef_shared)
    add_test(NAME frame/exports COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/exports.sh
      $<TARGET_LINKER_FILE:clef_shared> ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    list(APPEND frame_tests frame/exports)
    if(TARGET clef_mpi)
      add_test(NAME frame/exports_mpi COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/exports.sh
        $<TARGET_LINKER_FILE:clef_mpi> ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
      list(APPEND frame_tests frame/exports_mpi)
    endif()
  endif()
  if(TARGET clef_tool)
    add_test(NAME frame/manual COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/manual.sh ${CMAKE_CURRENT_SOURCE_DIR}
      $<TARGET_FILE:clef_tool>)
    list(APPEND frame_tests frame/manual)
  endif()
  if(CLEF_INSTALL)
    add_test(NAME frame/installed COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/install/run.sh
      ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_COMMAND})
    list(APPEND frame_tests frame/installed)
  endif()
  set_tests_properties(${frame_tests} PROPERTIES LABELS frame SKIP_RETURN_CODE 77 TIMEOUT ${clef_test_timeout}
    ENVIRONMENT "${clef_test_environment}")
endif()

# ---- what is measured of a GPU on the day that one is there: the short form, on whatever device there is ----
if(SH AND TARGET bench_clef AND TARGET kernels_test_matrix AND TARGET clef_tool AND NOT CLEF_SANITIZE)
  add_test(NAME bench/gpu COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/tests/frame/gpu_catch.sh ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(bench/gpu PROPERTIES LABELS portability SKIP_RETURN_CODE 77 TIMEOUT ${clef_test_timeout} COST 80
    ENVIRONMENT "${clef_test_environment};CLEF_PROFILE=gpu;${clef_compile_fast}")
endif()

# ---- kernels for GPUs that are not here, by their makers' compilers ----
if(SH AND TARGET bench_clef AND TARGET stub_opencl AND NOT CLEF_SANITIZE)
  add_test(NAME bench/targets COMMAND ${SH} ${CMAKE_CURRENT_SOURCE_DIR}/bench/targets.sh ${CMAKE_CURRENT_BINARY_DIR}/targets
    --quick --devices a100,mi100)
  set_tests_properties(bench/targets PROPERTIES LABELS portability SKIP_RETURN_CODE 77 TIMEOUT ${clef_test_timeout} COST 120
    ENVIRONMENT "${clef_test_environment};CLEF_BUILD=${CMAKE_CURRENT_BINARY_DIR}")
endif()
