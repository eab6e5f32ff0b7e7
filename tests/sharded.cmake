sherd_test(sharded_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/sharded_test.cpp)
