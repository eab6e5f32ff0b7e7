# A small GPT (train_gpt/): demo, which trains it on four ranks and on one, and train_gpt, which trains it on the ranks that a
# launcher starts. Its model and loop are a library, for the tests.

include(${CMAKE_CURRENT_SOURCE_DIR}/train/library.cmake)

set(folder ${CMAKE_CURRENT_SOURCE_DIR}/train_gpt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/text.txt)
file(READ ${folder}/text.txt text)
configure_file(${folder}/text.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/text.cpp @ONLY)

add_library(train_gpt STATIC ${CMAKE_CURRENT_BINARY_DIR}/text.cpp ${folder}/corpus.cpp ${folder}/train.cpp)
target_include_directories(train_gpt PUBLIC ${folder})
target_link_libraries(train_gpt PUBLIC training)
sherd_use_torch_header(train_gpt)

add_executable(demo ${folder}/main.cpp ${folder}/page.cpp)
sherd_use_torch_header(demo)
target_link_libraries(demo PRIVATE train_gpt CLI11::CLI11 fmt::fmt-header-only)
add_dependencies(demo sherd_command)  # --processes starts it

# The library has the program's name.
add_executable(train_gpt_program ${folder}/train_main.cpp)
set_target_properties(train_gpt_program PROPERTIES OUTPUT_NAME train_gpt)
sherd_use_torch_header(train_gpt_program)
target_link_libraries(train_gpt_program PRIVATE train_gpt training_program)
