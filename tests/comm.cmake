# The room comm.

sherd_test(transports_test LABEL conformance LINK sherd
  SOURCES conformance/c10d_test.cpp conformance/collectives_test.cpp conformance/groups_test.cpp
          conformance/transports.cpp)
# A program of its own: which host a rank is on is read once in a process, and must not have been read before the fork.
sherd_test(hosts_test LABEL conformance LINK sherd
  SOURCES conformance/c10d_test.cpp conformance/collectives_test.cpp conformance/groups_test.cpp conformance/hosts.cpp)
sherd_test(huge_message_test LABEL conformance LINK sherd SOURCES conformance/huge_test.cpp)

sherd_test(comm_errors_test LABEL error LINK sherd
  SOURCES error/comm_errors_test.cpp error/rank_failures_test.cpp)

# Ranks as processes: programs that the test starts.
if(SHERD_TORCH_ROOMS)
  foreach(program collectives_program failing_program hosts_program)
    add_executable(${program} multiprocess/${program}.cpp)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    sherd_use_test_header(${program})
  endforeach()
  sherd_test(processes_test LABEL multiprocess LINK core SOURCES multiprocess/processes_test.cpp)
  add_dependencies(processes_test sherd_command collectives_program failing_program)
  set(rpc $<$<BOOL:${SHERD_RPC}>:rpc>)
  add_test(NAME two_hosts_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/multiprocess/two_hosts.sh
                                       $<TARGET_FILE:sherd_command> $<TARGET_FILE:hosts_program> ${rpc})
  set_tests_properties(two_hosts_test PROPERTIES LABELS multiprocess TIMEOUT 300 PROCESSORS 4 SKIP_RETURN_CODE 77)
endif()

# Ranks as processes that mpirun starts: the suite, for each number of ranks that it asks for, and a program, with no
# variable set. As root, and with more ranks than cores, mpirun must be told that this is meant.
if(SHERD_MPI)
  sherd_test(mpi_test LABEL conformance LINK sherd
    SOURCES conformance/c10d_test.cpp conformance/collectives_test.cpp conformance/groups_test.cpp conformance/mpi.cpp)
  function(sherd_mpi_test name ranks program)
    cmake_parse_arguments(TEST "" "LABEL" "ARGUMENTS;ENVIRONMENT;THROUGH" ${ARGN})
    add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${TEST_THROUGH}
                                  $<TARGET_FILE:${program}> ${TEST_ARGUMENTS})
    set_tests_properties(${name} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT 300 PROCESSORS ${ranks}
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMP_NUM_THREADS=1;${TEST_ENVIRONMENT}")
  endfunction()
  foreach(ranks 2 3 4 8)
    sherd_mpi_test(mpi_${ranks}_ranks_test ${ranks} mpi_test LABEL conformance)
  endforeach()
  sherd_mpi_test(mpi_checked_test 3 mpi_test LABEL conformance ENVIRONMENT SHERD_CHECK=1)
  sherd_mpi_test(mpirun_test 4 collectives_program LABEL multiprocess)
  sherd_mpi_test(mpirun_over_mpi_test 4 collectives_program LABEL multiprocess ARGUMENTS mpi)
  # As if there were two hosts: the ranks ask MPI where rank 0 is.
  sherd_mpi_test(mpirun_without_address_test 4 collectives_program LABEL multiprocess
    THROUGH ${CMAKE_COMMAND} -E env OMPI_COMM_WORLD_LOCAL_SIZE=2)
  sherd_mpi_test(mpirun_killed_rank_test 3 failing_program LABEL multiprocess ARGUMENTS "is killed" 1 mpi)
  set_tests_properties(mpirun_killed_rank_test PROPERTIES PASS_REGULAR_EXPRESSION "rank 1 .*exited on signal 9")
  # Variables that another launcher set.
  sherd_mpi_test(mpirun_other_world_test 1 failing_program LABEL multiprocess ARGUMENTS nothing 0 mpi
    ENVIRONMENT "RANK=1;WORLD_SIZE=2;MASTER_ADDR=127.0.0.1;MASTER_PORT=1")
  set_tests_properties(mpirun_other_world_test PROPERTIES PASS_REGULAR_EXPRESSION
    "init: MPI did not start the ranks of this world\n  torchrun: rank 1 of 2\n  MPI: rank 0 of 1\n  help: mpirun -n 4 ./program, or another backend")
  sherd_mpi_test(mpirun_early_end_test 3 failing_program LABEL multiprocess ARGUMENTS "ends early" 1 mpi
    ENVIRONMENT SHERD_TIMEOUT=5)
  set_tests_properties(mpirun_early_end_test PROPERTIES
    PASS_REGULAR_EXPRESSION "all_reduce: rank 1 has already ended")
  sherd_mpi_test(mpirun_late_rank_test 3 failing_program LABEL multiprocess ARGUMENTS "is late" 1 mpi
    ENVIRONMENT SHERD_TIMEOUT=2)
  set_tests_properties(mpirun_late_rank_test PROPERTIES
    PASS_REGULAR_EXPRESSION "all_reduce: rank 1 never came")
endif()

sherd_test(comm_test LABEL unit LINK sherd
  SOURCES unit/comm/backend_config_test.cpp unit/comm/call_shape_test.cpp unit/comm/device_mesh_test.cpp
          unit/comm/hierarchical_test.cpp unit/comm/recorder_test.cpp unit/comm/reduce_test.cpp unit/comm/shm_test.cpp
          unit/comm/watched_store_test.cpp unit/comm/world_test.cpp)

# Tensors of other ranks.
if(SHERD_RPC)
  sherd_test(rpc_test LABEL unit LINK sherd SOURCES unit/comm/rpc_test.cpp)
  sherd_test(rpc_errors_test LABEL error LINK sherd SOURCES error/rpc_errors_test.cpp)
  add_executable(rpc_program multiprocess/rpc_program.cpp)
  set_target_properties(rpc_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  sherd_use_test_header(rpc_program)
  sherd_test(rpc_processes_test LABEL multiprocess LINK core SOURCES multiprocess/rpc_processes_test.cpp)
  add_dependencies(rpc_processes_test sherd_command rpc_program)
else()
  sherd_test(no_rpc_test LABEL error LINK sherd SOURCES error/no_rpc_test.cpp)
endif()
