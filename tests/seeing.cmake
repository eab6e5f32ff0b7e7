# What a program communicates, and why.
sherd_test(comm_debug_test LABEL property LINK sherd
  SOURCES property/comm_debug_test.cpp property/comm_trace_test.cpp property/explain_step_test.cpp)
if(COMMAND sherd_python_test)
  sherd_python_test(test_comm_debug)
endif()
