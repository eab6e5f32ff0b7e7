sherd_bench(spawn LINK sherd SOURCES spawn_bench.cpp)

# bench_transport: what a collective costs between ranks of one host. bench/transport/run.py runs it beside Gloo.
if(SHERD_TORCH_ROOMS)
  include(TorchHeader)
  add_executable(bench_transport transport/transport_bench.cpp)
  sherd_use_torch_header(bench_transport)
  target_link_libraries(bench_transport PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
  set_target_properties(bench_transport PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  if(SHERD_TESTS)
    add_test(NAME bench_transport COMMAND bench_transport --threads 2 --sizes 4096,1048576 --seconds 0.01)
    set_tests_properties(bench_transport PROPERTIES LABELS bench TIMEOUT 120)
  endif()
endif()
