sherd_test(state_dict_test LABEL unit LINK sherd SOURCES unit/checkpoint/state_dict_test.cpp)
