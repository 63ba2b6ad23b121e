# cmake -DFROM=<cl/> -DTO=<pointwise.h> -P pointwise_header.cmake
#
# Declares one public function per row of the op tables, with the row's last string as its comment.
#
# A row begins with a macro's name at the start of a line and ends where its parenthesis closes; the macro says what
# the function takes:
#   UNARY(name, …), UNARY_FULL  x          UNARY_P  x, p          UNARY_PP  x, p, q
#   BINARY(name, …), BINARY_CORE, BINARY_FULL  a, b (and name_scalar: a, double)         TERNARY(name, …)  a, b, c
cmake_minimum_required(VERSION 3.22)

# Position just past the parenthesis that closes the one before `text`'s first character.
function(closing text out)
  set(depth 1)
  set(at 0)
  while(depth GREATER 0)
    string(REGEX MATCH "[\"()]" found "${text}")
    if(found STREQUAL "")
      message(FATAL_ERROR "${table}: a row does not end: ${text}")
    endif()
    if(found STREQUAL "\"")
      string(REGEX MATCH "^[^\"]*\"([^\"\\]|\\\\.)*\"" skip "${text}")
      if(skip STREQUAL "")
        message(FATAL_ERROR "${table}: a string does not end: ${text}")
      endif()
    else()
      string(REGEX MATCH "^[^\"()]*[()]" skip "${text}")
      if(found STREQUAL "(")
        math(EXPR depth "${depth} + 1")
      else()
        math(EXPR depth "${depth} - 1")
      endif()
    endif()
    string(LENGTH "${skip}" length)
    string(SUBSTRING "${text}" ${length} -1 text)
    math(EXPR at "${at} + ${length}")
  endwhile()
  set(${out} ${at} PARENT_SCOPE)
endfunction()

set(declarations "")
macro(declare name arguments)
  string(APPEND declarations "CLEF_API clef_tensor *clef_${name}(${arguments});\n")
endmacro()

set(x "clef_tensor *")
foreach(table unary binary ternary)
  if(NOT EXISTS ${FROM}/${table}.def)
    continue()
  endif()
  string(APPEND declarations "\n/* ---- ${table} ---- */\n")
  file(READ ${FROM}/${table}.def text)
  # Comments may hold quotes and brackets: out with them first.  (A string of a row has no comment signs.)
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "\n[ \t]*//[^\n]*" "\n" text "\n${text}")
  string(REGEX REPLACE "\n[ \t]*#[^\n]*" "\n" text "\n${text}")
  while(text MATCHES "\n[ \t]*((UNARY|BINARY|TERNARY)(_P|_PP|_CORE|_FULL)?)[ \t]*\\([ \t\n]*([a-z0-9_]+)")
    set(kind ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_4})
    string(FIND "${text}" "${CMAKE_MATCH_0}" at)
    string(LENGTH "${CMAKE_MATCH_0}" length)
    math(EXPR at "${at} + ${length}")
    string(SUBSTRING "${text}" ${at} -1 text)
    closing("${text}" length)
    string(SUBSTRING "${text}" 0 ${length} row)
    string(SUBSTRING "${text}" ${length} -1 text)
    string(REGEX MATCH "\"(([^\"\\]|\\\\.)*)\"[ \t\n]*\\)$" _ "${row}")
    set(doc "${CMAKE_MATCH_1}")
    string(REPLACE "\\\"" "\"" doc "${doc}")
    string(REGEX REPLACE "\\.$" "" doc "${doc}")
    string(APPEND declarations "/* ${doc}. */\n")
    if(kind MATCHES "^UNARY(_FULL)?$")
      declare(${name} "${x}x")
    elseif(kind STREQUAL "UNARY_P")
      declare(${name} "${x}x, double p")
    elseif(kind STREQUAL "UNARY_PP")
      declare(${name} "${x}x, double p, double q")
    elseif(kind MATCHES "^BINARY(_CORE|_FULL)?$")
      declare(${name} "${x}a, ${x}b")
      declare(${name}_scalar "${x}a, double b")
    elseif(kind STREQUAL "TERNARY")
      declare(${name} "${x}a, ${x}b, ${x}c")
    else()
      message(FATAL_ERROR "${table}.def: ${kind}(${name}, …): there is no such kind of row")
    endif()
  endwhile()
endforeach()

file(WRITE ${TO} "/* clef/pointwise.h — one function per row of the op tables; made by cmake/pointwise_header.cmake.

   All work element by element; two or three operands broadcast against each other as in NumPy.  The result is a temporary
   of the step; a NULL input gives NULL; what does not fit fails with CLEF_SHAPE or CLEF_DTYPE.
   clef_NAME_scalar(a, b) takes a number for b.  p and q are the parameters named in a function's line.

   Dtypes never have to agree.  The common dtype of two tensors is the later one in
       bool < u8 < i32 < i64 < f16, bf16 < f32 < f64        (f16 with bf16: f32)
   whatever their shapes, so i64 with f16 gives f16.  From it follows what a function computes in and gives:
   - what whole numbers know too (neg, relu, clamp, add, floor_divide, remainder, pow, maximum and their like): the
     common dtype, i32 for bools; whole numbers wrap.  floor, ceil, round and trunc give whole numbers back.
   - functions of reals (exp, sigmoid, leaky_relu, div, atan2, lerp and their like): the common dtype, but f32
     for whole numbers.
   - comparisons: computed in the common dtype, also i64 with f32 in f32; the result is a bool.
   - logical functions: what is not 0 is true; the result is a bool.  where: the common dtype of b and c.
   A number beside a tensor takes the tensor's dtype, with three exceptions: beside whole numbers one with a
   fraction, or NaN, makes both f32; beside u8 one outside 0 … 255, and beside bool any, makes both i32.
   It is not rounded to f16 or bf16, and saturates at the limits of i32 and i64.  f16 and bf16 are computed
   in f32 and rounded once for each function.  Conversions: clef_to. */
#ifndef CLEF_POINTWISE_H
#define CLEF_POINTWISE_H
#include \"clef/tensor.h\"

#ifdef __cplusplus
extern \"C\" {
#endif
${declarations}
#ifdef __cplusplus
}
#endif
#endif
")
