# A small ResNet (train_resnet/): train_resnet, the program, and its model and images as a library, for the tests.

include(${CMAKE_CURRENT_SOURCE_DIR}/train/library.cmake)

add_library(train_resnet STATIC ${CMAKE_CURRENT_SOURCE_DIR}/train_resnet/images.cpp)
target_include_directories(train_resnet PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/train_resnet)
target_link_libraries(train_resnet PUBLIC training)
sherd_use_torch_header(train_resnet)

add_executable(train_resnet_program ${CMAKE_CURRENT_SOURCE_DIR}/train_resnet/train_main.cpp)
set_target_properties(train_resnet_program PROPERTIES OUTPUT_NAME train_resnet)
sherd_use_torch_header(train_resnet_program)
target_link_libraries(train_resnet_program PRIVATE train_resnet training_program)
