# bench_random: what drawing costs. bench/random/run.py runs it.
if(NOT SHERD_TORCH_ROOMS)
  return()
endif()
include(TorchHeader)

add_executable(bench_random random/random_bench.cpp)
sherd_use_torch_header(bench_random)
target_link_libraries(bench_random PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
set_target_properties(bench_random PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
set_source_files_properties(random/random_bench.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)  # of GCC 12
if(SHERD_TESTS)
  add_test(NAME bench_random COMMAND bench_random --bytes 65536 --runs 1)
  set_tests_properties(bench_random PROPERTIES LABELS bench TIMEOUT 120)
endif()
