# The room checkpoint.

sherd_test(state_dict_test LABEL unit LINK sherd SOURCES unit/checkpoint/state_dict_test.cpp)
sherd_test(checkpoint_test LABEL property LINK sherd SOURCES property/checkpoint_test.cpp)
sherd_test(model_state_test LABEL unit LINK sherd
  SOURCES unit/checkpoint/model_state_test.cpp unit/checkpoint/optimizer_state_test.cpp)
