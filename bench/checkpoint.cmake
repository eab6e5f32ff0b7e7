# bench_checkpoint: what checkpoints cost. bench/checkpoint/run.py runs it beside torch's.
if(NOT SHERD_TORCH_ROOMS)
  return()
endif()
include(TorchHeader)

add_executable(bench_checkpoint checkpoint/checkpoint_bench.cpp checkpoint/plain_io.cpp)
sherd_use_torch_header(bench_checkpoint)
target_link_libraries(bench_checkpoint PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
set_target_properties(bench_checkpoint PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
if(SHERD_TESTS)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/bench/checkpoint)
  add_test(NAME bench_checkpoint
           COMMAND bench_checkpoint --threads 4 --folder ${PROJECT_BINARY_DIR}/bench/checkpoint --tensors 4 --side 64
                   --small 10 save load reshard save_small load_small async write read copy)
  add_test(NAME bench_checkpoint_plan COMMAND bench_checkpoint --plan 64 --tensors 10)
  set_tests_properties(bench_checkpoint bench_checkpoint_plan PROPERTIES LABELS bench TIMEOUT 120)
endif()
