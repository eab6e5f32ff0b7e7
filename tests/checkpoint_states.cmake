# States of more than tensors, and what saves leave behind.

sherd_test(checkpoint_states_test LABEL property LINK sherd SOURCES property/checkpoint_states_test.cpp)
