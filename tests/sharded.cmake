sherd_test(sharded_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/sharded_test.cpp)
sherd_test(sharded_tensor_test LABEL unit LINK sherd
  SOURCES unit/sharded/sharding_spec_test.cpp unit/sharded/sharded_tensor_test.cpp unit/sharded/embedding_test.cpp)
sherd_test(sharded_errors_test LABEL error LINK sherd SOURCES error/sharded_errors_test.cpp)
