# The room comm.

sherd_test(transports_test LABEL conformance LINK sherd
  SOURCES conformance/c10d_test.cpp conformance/collectives_test.cpp conformance/groups_test.cpp
          conformance/transports.cpp)
sherd_test(huge_message_test LABEL conformance LINK sherd SOURCES conformance/huge_test.cpp)

sherd_test(comm_errors_test LABEL error LINK sherd
  SOURCES error/comm_errors_test.cpp error/rank_failures_test.cpp)

# Ranks as processes: programs that the test starts.
if(SHERD_TORCH_ROOMS)
  foreach(program collectives_program failing_program)
    add_executable(${program} multiprocess/${program}.cpp)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    sherd_use_torch_header(${program})
  endforeach()
  sherd_test(processes_test LABEL multiprocess LINK core SOURCES multiprocess/processes_test.cpp)
  add_dependencies(processes_test sherd_command collectives_program failing_program)
endif()

sherd_test(comm_test LABEL unit LINK sherd
  SOURCES unit/comm/backend_config_test.cpp unit/comm/device_mesh_test.cpp unit/comm/recorder_test.cpp
          unit/comm/reduce_test.cpp unit/comm/shm_test.cpp unit/comm/world_test.cpp)
