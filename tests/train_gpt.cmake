# The demo: its training loop, and the program itself.

if(NOT TARGET train_gpt)
  return()
endif()

sherd_test(train_gpt_test LABEL property LINK sherd SOURCES property/train_gpt_test.cpp)
target_link_libraries(train_gpt_test PRIVATE train_gpt)

# sherd_demo_test(<name> <label> <argument>...): a few steps of the demo.
function(sherd_demo_test name label)
  add_test(NAME ${name} COMMAND demo --steps 3 --html ${PROJECT_BINARY_DIR}/tests/${name}.html ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()

sherd_demo_test(demo examples)
sherd_demo_test(demo_eight_ranks examples --ranks 8 --mesh "[dp=2, tp=4]")
sherd_demo_test(demo_processes multiprocess --processes --ranks 2)

sherd_test(data_parallel_test LABEL property LINK sherd SOURCES property/data_parallel_test.cpp)
target_link_libraries(data_parallel_test PRIVATE train_gpt)
sherd_test(data_parallel_errors_test LABEL error LINK sherd SOURCES error/data_parallel_errors_test.cpp)
