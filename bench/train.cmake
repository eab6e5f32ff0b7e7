# bench_train: how fast a GPT trains. bench/train/run.py runs it beside Python's.
if(NOT TARGET train_gpt)
  return()
endif()
include(TorchHeader)

add_executable(bench_train train/train_bench.cpp)
sherd_use_torch_header(bench_train)
target_link_libraries(bench_train PRIVATE train_gpt CLI11::CLI11 nlohmann_json::nlohmann_json)
target_compile_definitions(bench_train PRIVATE $<$<BOOL:${SHERD_CUDA}>:SHERD_BENCH_CUDA>)
set_target_properties(bench_train PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
if(SHERD_TESTS)
  add_test(NAME bench_train COMMAND sherd_command run -n 2 -- $<TARGET_FILE:bench_train> --tp 2 --layers 1 --width 16
                                    --length 8 --steps 2 --warmup 1)
  add_test(NAME bench_train_plain COMMAND bench_train --plain --layers 1 --width 16 --length 8 --steps 2 --warmup 1)
  set_tests_properties(bench_train bench_train_plain PROPERTIES LABELS bench TIMEOUT 120)
endif()
