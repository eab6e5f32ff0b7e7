# docs/guide.md: its tables name what there is, and it is followed word by word: its project is built against what is installed, and run.

add_test(NAME docs_names COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/check_names.py
                                 ${PROJECT_SOURCE_DIR}/docs/guide.md ${PROJECT_SOURCE_DIR}/docs/training.md)
set_tests_properties(docs_names PROPERTIES LABELS docs TIMEOUT 60)

if(NOT SHERD_TORCH_ROOMS OR SHERD_TORCH_BY_HAND OR SHERD_SANITIZE)
  return()
endif()
execute_process(COMMAND ${SHERD_PYTHON} -c "import torch" RESULT_VARIABLE no_torch ERROR_QUIET)
if(NOT no_torch)
  add_test(NAME docs_guide COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/follow_guide.py
                                   ${PROJECT_SOURCE_DIR}/docs/guide.md ${PROJECT_BINARY_DIR})
  set_tests_properties(docs_guide PROPERTIES LABELS docs TIMEOUT 1200 PROCESSORS 2)
endif()
