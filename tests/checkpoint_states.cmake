# States of more than tensors, and checkpoints in an object store.

sherd_test(checkpoint_states_test LABEL property LINK sherd SOURCES property/checkpoint_states_test.cpp)

# Against a server that the test starts; without libcurl there is no client.
if(CURL_INCLUDE_DIR AND SHERD_TORCH_ROOMS)
  sherd_test(checkpoint_s3_test LABEL property LINK sherd SOURCES s3/server.cpp s3/checkpoint_s3_test.cpp)
  target_compile_definitions(checkpoint_s3_test PRIVATE SHERD_PYTHON="${SHERD_PYTHON}")
endif()
