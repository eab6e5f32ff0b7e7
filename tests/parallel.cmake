sherd_test(tensor_parallel_test LABEL property LINK sherd SOURCES property/tensor_parallel_test.cpp)
sherd_test(module_call_test LABEL property LINK sherd SOURCES property/module_call_test.cpp)
sherd_test(sharded_init_test LABEL property LINK sherd SOURCES property/sharded_init_test.cpp)
sherd_test(parallel_errors_test LABEL error LINK sherd SOURCES error/parallel_errors_test.cpp)
# GCC 12 sees an uninitialized value in the layouts that a style leaves out.
set_source_files_properties(error/parallel_errors_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
sherd_test(torch_script_test LABEL property LINK sherd SOURCES property/torch_script_test.cpp)
