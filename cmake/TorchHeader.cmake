# torch/torch.h takes 17 s to compile. Programs that include it (tests, examples) share one precompiled copy.

include_guard(GLOBAL)
if(NOT SHERD_TORCH_ROOMS)
  return()
endif()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_header.cpp CONTENT "// A precompiled header needs a source.\n")
add_library(sherd_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_header.cpp)
target_link_libraries(sherd_torch_pch PRIVATE sherd_flags sherd_torch)
target_precompile_headers(sherd_torch_pch PRIVATE <torch/torch.h>)

# Links <target> with libsherd and gives it the precompiled header. GCC takes the header only where the flags are the
# same: position-independent code as for libraries, which also serves programs.
function(sherd_use_torch_header target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_link_libraries(${target} PRIVATE sherd_flags sherd sherd_torch)
  target_precompile_headers(${target} REUSE_FROM sherd_torch_pch)
endfunction()
