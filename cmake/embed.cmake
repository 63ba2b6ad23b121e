# cmake -DFROM=<cl/> -DTO=<file.c> -P embed.cmake
#
# Writes the device code as C byte arrays (string literals have length limits), one entry per .cl and .h file of FROM, with its SHA-256.
# Lines `#include "x"` are replaced by the file: a .h once per entry, a .def, .args or .inc (read through macros) each time.  Of a .cl,
# common.h is left out: the host puts it first, once, whatever else a program is made of.
cmake_minimum_required(VERSION 3.22)

# Puts the text of `file` with its includes inlined into the variable `out`.  The caller clears `seen`.
function(inlined file out)
  file(READ ${FROM}/${file} text)
  set(text "\n${text}\n")
  while(text MATCHES "\n[ \t]*#[ \t]*include[ \t]+\"([^\"\n]+)\"[^\n]*\n")
    set(line "${CMAKE_MATCH_0}")
    set(name "${CMAKE_MATCH_1}")
    if(NOT EXISTS ${FROM}/${name})
      message(FATAL_ERROR "${file} includes \"${name}\", which is not in ${FROM}")
    endif()
    get_property(seen GLOBAL PROPERTY seen)
    if(name MATCHES "\\.h$" AND name IN_LIST seen)
      set(body "")
    else()
      set_property(GLOBAL APPEND PROPERTY seen ${name})
      inlined(${name} body)
    endif()
    # Only the first occurrence: a table may be included again under other macros.
    string(FIND "${text}" "${line}" at)
    string(LENGTH "${line}" length)
    math(EXPR after "${at} + ${length}")
    string(SUBSTRING "${text}" 0 ${at} head)
    string(SUBSTRING "${text}" ${after} -1 tail)
    set(text "${head}\n${body}\n${tail}")
  endwhile()
  string(REGEX REPLACE "^\n+" "" text "${text}")
  string(REGEX REPLACE "\n+$" "\n" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

file(GLOB files RELATIVE ${FROM} ${FROM}/*.cl ${FROM}/*.h)
list(SORT files)
set(arrays "")
set(rows "")
set(count 0)
foreach(file IN LISTS files)
  set_property(GLOBAL PROPERTY seen "${file}")
  if(file MATCHES "\\.cl$")
    set_property(GLOBAL APPEND PROPERTY seen common.h)
  endif()
  inlined(${file} text)
  # Drivers read all of it for every program: without comments and indentation it is half as long.
  string(REGEX REPLACE "/[*][^*]*[*]+([^/*][^*]*[*]+)*/" " " text "${text}")
  string(REGEX REPLACE "[ \t]+(\n| \\\\\n)" "\\1" text "${text}")
  string(REGEX REPLACE "\n[ \t\n]+" "\n" text "${text}")
  string(REGEX REPLACE "^\n+" "" text "${text}")
  file(WRITE ${TO}.tmp "${text}")
  file(READ ${TO}.tmp hex HEX)
  file(SHA256 ${TO}.tmp digest)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes
    "${bytes}")
  string(APPEND arrays "static const unsigned char text_${count}[] = { /* ${file} */\n${bytes}0};\n")
  string(APPEND rows "    {\"${file}\", (const char *)text_${count},\n     \"${digest}\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(REMOVE ${TO}.tmp)
file(WRITE ${TO} "/* The device code of cl/, made by cmake/embed.cmake. */
struct clef__embedded_file {
    const char *name;
    const char *text, *digest;
};
extern const struct clef__embedded_file clef__embedded_files[];
extern const int clef__embedded_count;

${arrays}
const struct clef__embedded_file clef__embedded_files[] = {
${rows}    {0, 0, 0}, /* not counted */
};
const int clef__embedded_count = ${count};
")
