# What a program communicates, and why.
sherd_test(comm_debug_test LABEL property LINK sherd
  SOURCES property/comm_debug_test.cpp property/comm_trace_test.cpp property/explain_step_test.cpp)
if(COMMAND sherd_python_test)
  sherd_python_test(test_comm_debug)
endif()

# What a viewer makes of a trace: of the one that a program of docs/seeing.md writes.
if(TARGET docs_seeing_1)
  set_tests_properties(docs_seeing_1 PROPERTIES FIXTURES_SETUP trace)
  add_test(NAME browser_trace COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/browser/perfetto.py chromium
                                      ${CMAKE_CURRENT_BINARY_DIR}/trace.json)
  set_tests_properties(browser_trace PROPERTIES LABELS docs TIMEOUT 300 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED trace)
endif()
