# What Clef links: OpenCL, libm, threads and what dlopen is in always; zlib when it is there.  CLBlast is loaded by a program that
# wants it and is no matter of the build.
#
# Sets CLEF_LIBRARIES (for the linker), CLEF_MATH, CLEF_COMPONENTS (one line for `clef --version`), CLEF_PC_PRIVATE and
# CLEF_PC_LIBS (for clef.pc), and the interface target clef_dependencies (definitions and include directories).
set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)
find_package(OpenCL)
if(NOT OpenCL_FOUND)
  message(FATAL_ERROR "Clef needs OpenCL's headers and loader. On Debian or Ubuntu: "
                      "apt-get install opencl-headers ocl-icd-opencl-dev (and a device: pocl-opencl-icd)")
endif()
find_package(PkgConfig QUIET)

find_library(CLEF_MATH_LIBRARY m)
mark_as_advanced(CLEF_MATH_LIBRARY)
if(CLEF_MATH_LIBRARY)
  set(CLEF_MATH m)
endif()

add_library(clef_dependencies INTERFACE)
# Headers only: a target inside OBJECT libraries must not drag link options of the other kinds along.
target_include_directories(clef_dependencies SYSTEM INTERFACE ${OpenCL_INCLUDE_DIRS})
target_compile_definitions(clef_dependencies INTERFACE CL_TARGET_OPENCL_VERSION=300)
set(CLEF_LIBRARIES OpenCL::OpenCL Threads::Threads ${CLEF_MATH} ${CMAKE_DL_LIBS})
set(CLEF_COMPONENTS "opencl")
set(CLEF_MISSING)
set(CLEF_PC_PRIVATE OpenCL)
set(CLEF_PC_LIBS "-lpthread -lm")
foreach(library IN LISTS CMAKE_DL_LIBS)
  string(APPEND CLEF_PC_LIBS " -l${library}")
endforeach()

if(NOT CLEF_WITH_ZLIB STREQUAL "OFF")
  find_package(ZLIB QUIET)
  if(ZLIB_FOUND)
    target_include_directories(clef_dependencies SYSTEM INTERFACE ${ZLIB_INCLUDE_DIRS})
    target_compile_definitions(clef_dependencies INTERFACE CLEF_HAVE_ZLIB=1)
    list(APPEND CLEF_LIBRARIES ZLIB::ZLIB)
    string(APPEND CLEF_COMPONENTS " zlib")
    list(APPEND CLEF_PC_PRIVATE zlib)
  elseif(CLEF_WITH_ZLIB STREQUAL "ON")
    message(FATAL_ERROR "CLEF_WITH_ZLIB is ON but zlib was not found (Debian: zlib1g-dev)")
  else()
    list(APPEND CLEF_MISSING "zlib1g-dev (gzip data)")
  endif()
endif()

string(REPLACE ";" " " CLEF_PC_PRIVATE "${CLEF_PC_PRIVATE}")
message(STATUS "Clef ${PROJECT_VERSION}: components ${CLEF_COMPONENTS}")
foreach(missing IN LISTS CLEF_MISSING)
  message(STATUS "Clef: built without ${missing}")
endforeach()
