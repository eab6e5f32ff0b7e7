sherd_test(sharded_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/sharded_test.cpp)
sherd_test(sharded_tensor_test LABEL unit LINK sherd
  SOURCES unit/sharded/sharding_spec_test.cpp unit/sharded/sharded_tensor_test.cpp unit/sharded/embedding_test.cpp)
sherd_test(sharded_errors_test LABEL error LINK sherd SOURCES error/sharded_errors_test.cpp)

# Ranks as processes.
if(SHERD_TORCH_ROOMS)
  add_executable(sharded_program multiprocess/sharded_program.cpp)
  set_target_properties(sharded_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  sherd_use_test_header(sharded_program)
  foreach(ranks 1 2 3 4)
    add_test(NAME sharded_${ranks}_processes_test
      COMMAND sherd_command run -n ${ranks} -- $<TARGET_FILE:sharded_program>)
  endforeach()
  add_test(NAME sharded_gloo_test COMMAND sherd_command run -n 3 -- $<TARGET_FILE:sharded_program> gloo)
  set_tests_properties(sharded_1_processes_test sharded_2_processes_test sharded_3_processes_test
    sharded_4_processes_test sharded_gloo_test PROPERTIES LABELS multiprocess TIMEOUT 120)
endif()
sherd_test(local_shards_test LABEL unit LINK sherd SOURCES unit/sharded/local_shards_test.cpp)
sherd_test(boxed_dtensor_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/boxed_dtensor_test.cpp)
sherd_test(local_shards_errors_test LABEL error LINK sherd SOURCES error/local_shards_errors_test.cpp)
