# bench_dispatch: what sherd adds to an operator. bench/dispatch/run.py runs it beside Python's DTensor.

if(NOT SHERD_TORCH_ROOMS)
  return()
endif()
include(TorchHeader)

add_executable(bench_dispatch dispatch/dispatch_bench.cpp dispatch/cases.cpp)
sherd_use_torch_header(bench_dispatch)
target_link_libraries(bench_dispatch PRIVATE CLI11::CLI11 fmt::fmt-header-only nlohmann_json::nlohmann_json)
add_executable(bench_dispatch_load dispatch/load.cpp)
target_link_libraries(bench_dispatch_load PRIVATE sherd_flags ${CMAKE_DL_LIBS})
# Not beside the benchmarks: it is none by itself.
set_target_properties(bench_dispatch_load PROPERTIES OUTPUT_NAME load_library
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench/tools)
set_target_properties(bench_dispatch PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)

if(SHERD_TESTS)
  add_test(NAME bench_dispatch COMMAND bench_dispatch times --runs 1 --iterations 10)
  set_tests_properties(bench_dispatch PROPERTIES LABELS bench TIMEOUT 120)
endif()
