sherd_bench(spawn LINK sherd SOURCES spawn_bench.cpp)

# bench_redistribute: bench/redistribute/run.py runs it beside torch's DTensor.
if(SHERD_TORCH_ROOMS)
  include(TorchHeader)
  add_executable(bench_redistribute redistribute/redistribute_bench.cpp)
  sherd_use_torch_header(bench_redistribute)
  target_link_libraries(bench_redistribute PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
  set_target_properties(bench_redistribute PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  if(SHERD_TESTS)
    add_test(NAME bench_redistribute COMMAND bench_redistribute --threads 4 --sizes 4096,1048576 --seconds 0.01)
    set_tests_properties(bench_redistribute PROPERTIES LABELS bench TIMEOUT 120)
  endif()
endif()
