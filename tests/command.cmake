# The command on checkpoints that PyTorch and sherd wrote.

execute_process(COMMAND ${SHERD_PYTHON} -c "import torch, numpy" RESULT_VARIABLE no_torch ERROR_QUIET)
if(NOT no_torch)
  add_test(NAME command_on_checkpoints COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/command/main.py
                                               $<TARGET_FILE:sherd_command>)
  set_tests_properties(command_on_checkpoints PROPERTIES LABELS python TIMEOUT 600
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
  add_test(NAME docs_command COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/run_console.py
                                     ${PROJECT_SOURCE_DIR}/docs/command.md $<TARGET_FILE:sherd_command>)
  set_tests_properties(docs_command PROPERTIES LABELS docs TIMEOUT 300)
endif()
