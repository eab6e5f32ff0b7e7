# The room xla, shardings as XLA writes them, and the bridge to XLA.

sherd_test(xla_unit LABEL unit LINK core SOURCES unit/xla/xla_sharding_test.cpp)
sherd_test(xla_property LABEL property LINK core SOURCES property/xla_test.cpp)
sherd_test(xla_errors LABEL error LINK core SOURCES error/xla_errors_test.cpp)
sherd_test(xla_bridge LABEL unit LINK sherd SOURCES unit/tensor/xla_bridge_test.cpp)
sherd_test(xla_bridge_errors LABEL error LINK sherd SOURCES error/xla_bridge_errors_test.cpp)

# docs/xla.md: its commands and its Python programs. Its C++ programs are among those of build.cmake.
execute_process(COMMAND ${SHERD_PYTHON} -c "import torch, numpy" RESULT_VARIABLE no_torch ERROR_QUIET)
if(NOT no_torch)
  add_test(NAME docs_command_xla COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/run_console.py
                                         ${PROJECT_SOURCE_DIR}/docs/xla.md $<TARGET_FILE:sherd_command>)
  set_tests_properties(docs_command_xla PROPERTIES LABELS docs TIMEOUT 300)
endif()
if(SHERD_PYTHON_PACKAGE)
  sherd_python_test(test_xla)  # against JAX, where it is installed
  add_test(NAME docs_python_xla COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/docs/run_python_programs.py
                                        ${PROJECT_SOURCE_DIR}/docs/xla.md)
  set_tests_properties(docs_python_xla PROPERTIES LABELS docs TIMEOUT 300 ENVIRONMENT "${python_environment}")
endif()
