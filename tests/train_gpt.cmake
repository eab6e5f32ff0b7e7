# The demo and train_gpt: their training loop, and the programs themselves.

if(NOT TARGET train_gpt)
  return()
endif()

sherd_test(train_gpt_test LABEL property LINK sherd SOURCES property/train_gpt_test.cpp)
target_link_libraries(train_gpt_test PRIVATE train_gpt)

# sherd_demo_test(<name> <label> <argument>...): a few steps of the demo.
function(sherd_demo_test name label)
  add_test(NAME ${name} COMMAND demo --steps 4 --html ${PROJECT_BINARY_DIR}/tests/${name}.html
                                     --checkpoint ${PROJECT_BINARY_DIR}/tests/${name}.checkpoint ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()

sherd_demo_test(demo examples)
set_tests_properties(demo PROPERTIES FIXTURES_SETUP demo_page)  # browser_screenshots looks at it
sherd_demo_test(demo_eight_ranks examples --ranks 8 --mesh "[dp=2, tp=4]")
sherd_demo_test(demo_processes multiprocess --processes --ranks 2)
sherd_demo_test(demo_three_ranks examples --mesh "[tp=3]" --resume-mesh "[dp=3]" --dtype float64)

# The program, under the launchers that there are.
find_program(SHERD_TORCHRUN torchrun HINTS ${SHERD_TORCH}/bin ${TORCH_INSTALL_PREFIX}/../../../../bin NO_DEFAULT_PATH)
sherd_test(train_gpt_program_test LABEL multiprocess LINK core SOURCES multiprocess/train_gpt_program_test.cpp
           TIMEOUT 600 ENVIRONMENT OMP_NUM_THREADS=1)
target_compile_definitions(train_gpt_program_test PRIVATE
  SHERD_TORCHRUN="$<$<BOOL:${SHERD_TORCHRUN}>:${SHERD_TORCHRUN}>" SHERD_MPIRUN="$<$<BOOL:${SHERD_MPI}>:${MPIEXEC_EXECUTABLE}>")
add_dependencies(train_gpt_program_test sherd_command train_gpt_program)

sherd_test(data_parallel_test LABEL property LINK sherd SOURCES property/data_parallel_test.cpp)
target_link_libraries(data_parallel_test PRIVATE train_gpt)
sherd_test(data_parallel_errors_test LABEL error LINK sherd SOURCES error/data_parallel_errors_test.cpp)

# Skips without a GPU, but for what it takes to compile.
sherd_test(training_cuda_test LABEL property LINK sherd SOURCES property/training_cuda_test.cpp)
target_link_libraries(training_cuda_test PRIVATE train_gpt)
target_compile_definitions(training_cuda_test PRIVATE $<$<BOOL:${SHERD_CUDA}>:SHERD_TESTS_CUDA>)
