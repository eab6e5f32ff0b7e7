# serve_gpt: a tensor-parallel GPT that writes with a sharded cache (serve_gpt/). The test of its model includes it, too.
add_executable(serve_gpt serve_gpt/main.cpp)
sherd_use_torch_header(serve_gpt)
if(SHERD_TESTS)
  add_test(NAME example_serve_gpt COMMAND serve_gpt)
  set_tests_properties(example_serve_gpt PROPERTIES LABELS examples TIMEOUT 120)
endif()
