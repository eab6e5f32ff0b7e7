# torch/torch.h takes 17 s to compile. Programs that include it (tests, examples) share one precompiled copy.

include_guard(GLOBAL)
if(NOT SHERD_TORCH_ROOMS)
  return()
endif()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_header.cpp CONTENT "// A precompiled header needs a source.\n")

# sherd_torch_header(<name> [<compile option>...]): a precompiled copy for programs with these options beside the usual.
function(sherd_torch_header name)
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/torch_header.cpp)
  target_link_libraries(${name} PRIVATE sherd_flags sherd_torch)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE <torch/torch.h>)
endfunction()
sherd_torch_header(sherd_torch_pch)

# Links <target> with libsherd and gives it the precompiled header, or the one that is named. GCC takes the header only
# where the flags are the same: position-independent code as for libraries, which also serves programs.
function(sherd_use_torch_header target)
  set(header ${ARGN} sherd_torch_pch)
  list(GET header 0 header)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_link_libraries(${target} PRIVATE sherd_flags sherd sherd_torch)
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()
