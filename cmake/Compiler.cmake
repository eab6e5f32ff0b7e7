# Flags for sherd's own targets. An interface target, so that nothing leaks into a project that adds sherd as a folder.

add_library(sherd_flags INTERFACE)
target_compile_options(sherd_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 see phantom overflows in inlined std::vector and std::string code at -O2.
  target_compile_options(sherd_flags INTERFACE -fno-semantic-interposition -Wno-stringop-overflow -Wno-array-bounds
                                               -Wno-restrict)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(sherd_flags INTERFACE -Wno-dangling-reference)  # it takes views for owners
  endif()
endif()

if(SHERD_SANITIZE)
  target_compile_options(sherd_flags INTERFACE -fsanitize=${SHERD_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(sherd_flags INTERFACE -fsanitize=${SHERD_SANITIZE})
  # The instrumented code confuses GCC's flow analysis; atomic_thread_fence is one thing that TSan does not model.
  target_compile_options(sherd_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-nonnull>")
  # libtorch is not built with the sanitizer, so what synchronises inside it looks like a race. The preset's
  # ignore_noninstrumented_modules leaves out calls that libtorch makes; all of sherd is watched, nothing is suppressed.
  if(SHERD_SANITIZE MATCHES "thread")
    target_compile_options(sherd_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

find_program(SHERD_CCACHE ccache)
if(SHERD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness settings are what ccache asks for with precompiled headers. Build folders beside each other share
  # objects: the wheel's is one.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=true ${SHERD_CCACHE})
  target_compile_options(sherd_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
