# The room checkpoint.

sherd_test(state_dict_test LABEL unit LINK sherd
  SOURCES unit/checkpoint/state_dict_test.cpp unit/checkpoint/flatten_sharded_test.cpp)
sherd_test(shared_blocks_test LABEL unit LINK sherd SOURCES unit/checkpoint/shared_blocks_test.cpp)
sherd_test(unusual_items_test LABEL unit LINK sherd SOURCES unit/checkpoint/unusual_items_test.cpp)
sherd_test(checkpoint_test LABEL property LINK sherd SOURCES property/checkpoint_test.cpp)
sherd_test(checkpoint_manager_test LABEL property LINK sherd SOURCES property/checkpoint_manager_test.cpp)
sherd_test(golden_formats_test LABEL unit LINK sherd SOURCES unit/checkpoint/golden_formats_test.cpp)
sherd_test(checkpoint_formats_test LABEL property LINK sherd SOURCES property/checkpoint_formats_test.cpp)
sherd_test(model_state_test LABEL unit LINK sherd
  SOURCES unit/checkpoint/model_state_test.cpp unit/checkpoint/optimizer_state_test.cpp)

# A model goes on training in the other language.
if(SHERD_TORCH_ROOMS)
  add_executable(continue_training checkpoint/continue_training.cpp)
  set_target_properties(continue_training PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  sherd_use_test_header(continue_training)
  if(SHERD_PYTHON_PACKAGE)
    add_test(NAME python_continue_training COMMAND ${Python3_EXECUTABLE}
      ${CMAKE_CURRENT_SOURCE_DIR}/checkpoint/continue_training.py $<TARGET_FILE:continue_training>)
    set_tests_properties(python_continue_training PROPERTIES LABELS python TIMEOUT 600)
  endif()
endif()
sherd_test(checkpoint_errors_test LABEL error LINK sherd
  SOURCES error/checkpoint_errors_test.cpp error/checkpoint_formats_errors_test.cpp error/checkpoint_ranks_test.cpp
  error/checkpoint_bits_test.cpp)
# Thousands of small saves: torch's threads would wait for each other most of the time.
sherd_test(checkpoint_crash_test LABEL crash LINK sherd ENVIRONMENT OMP_NUM_THREADS=1
  SOURCES crash/simulated_disk.cpp crash/ways_to_save.cpp crash/checkpoint_crash_test.cpp)
sherd_test(checkpoint_store_crash_test LABEL crash LINK sherd ENVIRONMENT OMP_NUM_THREADS=1
  SOURCES crash/ways_to_save.cpp s3/store_in_memory.cpp crash/checkpoint_store_crash_test.cpp)
if(SHERD_TORCH_ROOMS)
  add_executable(checkpoint_program multiprocess/checkpoint_program.cpp)
  set_target_properties(checkpoint_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  sherd_use_test_header(checkpoint_program)
  sherd_test(checkpoint_processes_test LABEL multiprocess LINK core SOURCES multiprocess/checkpoint_processes_test.cpp)
  add_dependencies(checkpoint_processes_test checkpoint_program)
endif()
