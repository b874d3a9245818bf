# SPDX-License-Identifier: Apache-2.0
# Targets of this project: libraries, programs, tests and fuzzers with one set of flags.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(rift_flags INTERFACE)
target_include_directories(rift_flags INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
target_compile_options(
  rift_flags
  INTERFACE -Wall
            -Wextra
            -Wconversion
            -Wsign-conversion
            -Wshadow
            -Wold-style-cast
            -Wnon-virtual-dtor
            # Sums keep the order they are written in, with and without FMA contraction.
            -ffp-contract=off
            $<$<BOOL:${RIFT_WERROR}>:-Werror>)

if(RIFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "RIFT_FUZZ needs clang++: configure with `cmake --preset fuzz`")
  endif()
  # Every library is instrumented; only the fuzz programs get libFuzzer's main().
  target_compile_options(
    rift_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(rift_flags INTERFACE -fsanitize=address,undefined)
endif()

# rift_library(NAME SOURCES a.cc ... [DEPS target ...]): library rift_NAME, alias rift::NAME.
function(rift_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(rift_${name} STATIC ${ARG_SOURCES})
  add_library(rift::${name} ALIAS rift_${name})
  target_link_libraries(rift_${name} PUBLIC rift_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# rift_program(NAME SOURCES ... DEPS ...): executable in build/<preset>/bin.
function(rift_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE rift_flags ${ARG_DEPS})
endfunction()

# rift_test(NAME SOURCES ... DEPS ... [LABELS ...] [TIMEOUT s]): one ctest per gtest program.
function(rift_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE rift_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# rift_fuzzer(NAME SOURCES ... DEPS ... [ARGS ...]): libFuzzer program over tests/fuzz/corpus/NAME/.
# In the clang tree (preset fuzz, RIFT_FUZZ=ON) it is the program; in any other tree it is the ctest
# fuzz.NAME (30 s), which runs that program after the fixture fuzz.build made it.
function(rift_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;ARGS" ${ARGN})
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  if(NOT IS_DIRECTORY "${corpus}")
    message(FATAL_ERROR "rift_fuzzer(${name}): commit at least one input in ${corpus}")
  endif()
  if(RIFT_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rift_flags ${ARG_DEPS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    # New inputs and crashes land here; the committed corpus is only read.
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/found/${name}")
    return()
  endif()
  set(tree "${PROJECT_SOURCE_DIR}/build/fuzz")
  add_test(
    NAME fuzz.${name}
    COMMAND "${tree}/bin/${name}" -max_total_time=30 -timeout=10 -rss_limit_mb=1536 -print_final_stats=1
            "-artifact_prefix=${tree}/found/${name}-" ${ARG_ARGS} "${tree}/found/${name}" "${corpus}")
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120 FIXTURES_REQUIRED fuzzers)
endfunction()
