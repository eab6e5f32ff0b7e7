# Bytes on their way: how they are copied, where they lie, and tensors that go from place to place without being packed.

sherd_test(copy_test LABEL unit LINK sherd
  SOURCES unit/comm/byte_runs_test.cpp unit/comm/copy_test.cpp unit/comm/huge_pages_test.cpp)
sherd_test(run_moves_test LABEL property LINK sherd TIMEOUT 300
  SOURCES property/run_moves_test.cpp property/distribute_any.cpp)
# The least memory to share: a block takes many rounds, which end in the middle of runs.
if(SHERD_TORCH_ROOMS)
  add_test(NAME run_moves_rounds_test COMMAND run_moves_test --gtest_filter=*shm*)
  set_tests_properties(run_moves_rounds_test PROPERTIES LABELS property TIMEOUT 300
    ENVIRONMENT "SHERD_SHM_BYTES=65536;OMP_NUM_THREADS=1")
endif()
