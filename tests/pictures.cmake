# Tensors drawn, reports, and what browsers make of them.

sherd_test(visualize_unit LABEL unit LINK sherd SOURCES unit/debug/report_test.cpp unit/debug/visualize_test.cpp
           ENVIRONMENT OMP_NUM_THREADS=1)

add_test(NAME docs_pictures_svg COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/check_pictures.py
                                        $<TARGET_FILE:sherd_command>)
set_tests_properties(docs_pictures_svg PROPERTIES LABELS docs TIMEOUT 120)

execute_process(COMMAND ${SHERD_PYTHON} -c "import torch, numpy" RESULT_VARIABLE no_torch ERROR_QUIET)
if(NOT no_torch)
  add_test(NAME docs_pictures COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/run_console.py
                                      ${PROJECT_SOURCE_DIR}/docs/pictures.md $<TARGET_FILE:sherd_command>)
  set_tests_properties(docs_pictures PROPERTIES LABELS docs TIMEOUT 300)
endif()

# In a real browser, where there is one; looked for when the test runs, since ./dev docs may install it later.
set(pages ${CMAKE_CURRENT_SOURCE_DIR}/golden/pictures.html)
if(TARGET demo)
  list(APPEND pages ${PROJECT_BINARY_DIR}/tests/demo.html)
endif()
add_test(NAME browser_screenshots COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/browser/screenshots.py chromium
                                          ${PROJECT_BINARY_DIR}/tests/screenshots ${pages})
set_tests_properties(browser_screenshots PROPERTIES LABELS docs TIMEOUT 600 SKIP_RETURN_CODE 77)
if(TARGET demo)
  set_tests_properties(browser_screenshots PROPERTIES FIXTURES_REQUIRED demo_page)
endif()
