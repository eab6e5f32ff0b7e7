# The lessons: one idea each, in this order. What they print stands in expected/.
foreach(lesson 01_mesh 02_distribute 03_layer 04_tensor_parallel 05_data_parallel 06_fully_sharded 07_two_axes 08_random
               09_resume)
  sherd_example(lesson_${lesson})
endforeach()

# The tenth goes on where a Python program stopped.
add_executable(lesson_10_from_python lesson_10_from_python.cpp)
sherd_use_torch_header(lesson_10_from_python)
execute_process(COMMAND ${SHERD_PYTHON} -c "import torch.distributed.checkpoint" RESULT_VARIABLE no_torch ERROR_QUIET)
if(SHERD_TESTS AND NOT no_torch)
  add_test(NAME example_lesson_10_from_python
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:lesson_10_from_python> -DPYTHON=${SHERD_PYTHON}
                   -DBEFORE=${CMAKE_CURRENT_SOURCE_DIR}/lesson_10_from_python.py
                   -DWORK=${PROJECT_BINARY_DIR}/tests/lesson_10_from_python
                   -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/expected/lesson_10_from_python.txt
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/expected/run.cmake)
  set_tests_properties(example_lesson_10_from_python PROPERTIES LABELS examples TIMEOUT 120)
endif()
