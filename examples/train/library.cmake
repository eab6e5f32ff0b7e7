# What the training programs share: the steps (training), and the program around them (training_program).
include_guard()

add_library(training STATIC ${CMAKE_CURRENT_LIST_DIR}/training.cpp ${CMAKE_CURRENT_LIST_DIR}/progress.cpp)
target_include_directories(training PUBLIC ${CMAKE_CURRENT_LIST_DIR}/.. ${CMAKE_CURRENT_LIST_DIR})
sherd_use_torch_header(training)
target_link_libraries(training PRIVATE fmt::fmt-header-only)

add_library(training_program STATIC ${CMAKE_CURRENT_LIST_DIR}/program.cpp ${CMAKE_CURRENT_LIST_DIR}/metrics.cpp
                                    ${CMAKE_CURRENT_LIST_DIR}/settings.cpp ${CMAKE_CURRENT_LIST_DIR}/stop_signal.cpp)
sherd_use_torch_header(training_program)
target_link_libraries(training_program PUBLIC training CLI11::CLI11 fmt::fmt-header-only nlohmann_json::nlohmann_json)
