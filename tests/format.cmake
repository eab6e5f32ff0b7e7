# The room format.

sherd_test(format_unit LABEL unit LINK core SOURCES
  unit/format/archive_test.cpp
  unit/format/crc32_test.cpp
  unit/format/golden_test.cpp
  unit/format/manifest_test.cpp
  unit/format/metadata_test.cpp
  unit/format/object_json_test.cpp
  unit/format/safetensors_test.cpp
  unit/format/saved_test.cpp
  unit/format/transforms_test.cpp
  unit/format/unfolded_test.cpp
  unit/format/unpickle_test.cpp)
if(TARGET sherd_zstd)
  target_compile_definitions(format_unit PRIVATE SHERD_TEST_ZSTD)
endif()

sherd_test(format_torch_save LABEL unit LINK sherd SOURCES unit/format/torch_save_test.cpp)

sherd_test(format_errors LABEL error LINK core SOURCES
  error/format_archive_errors_test.cpp
  error/format_manifest_errors_test.cpp
  error/format_metadata_errors_test.cpp
  error/format_pickle_errors_test.cpp)

# Python compares what sherd reads and writes with what it reads and writes itself.
add_executable(format_probe python/format_probe.cpp)
set_target_properties(format_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(format_probe PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(format_probe PRIVATE sherd_flags sherd_core fmt::fmt-header-only)

# sherd_format_test(<name> [<argument>...]): python/<name>.py with the probe
function(sherd_format_test name)
  add_test(NAME ${name} COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/${name}.py $<TARGET_FILE:format_probe>
                               ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS python TIMEOUT 600 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endfunction()

sherd_format_test(test_pickles)
execute_process(COMMAND ${SHERD_PYTHON} -c "import torch" RESULT_VARIABLE no_torch ERROR_QUIET)
if(NOT no_torch)
  sherd_format_test(test_archives)
  sherd_format_test(test_metadata)
  execute_process(COMMAND ${SHERD_PYTHON} -c "import zstandard" RESULT_VARIABLE no_zstandard ERROR_QUIET)
  if(NOT no_zstandard AND TARGET sherd_zstd)
    sherd_format_test(test_transforms)
  endif()
  execute_process(COMMAND ${SHERD_PYTHON} -c "import safetensors" RESULT_VARIABLE no_safetensors ERROR_QUIET)
  if(NOT no_safetensors)
    sherd_format_test(test_safetensors)
  endif()
endif()
