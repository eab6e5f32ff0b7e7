sherd_test(sharded_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/sharded_test.cpp)
sherd_test(local_shards_test LABEL unit LINK sherd SOURCES unit/sharded/local_shards_test.cpp)
sherd_test(boxed_dtensor_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/boxed_dtensor_test.cpp)
sherd_test(local_shards_errors_test LABEL error LINK sherd SOURCES error/local_shards_errors_test.cpp)
