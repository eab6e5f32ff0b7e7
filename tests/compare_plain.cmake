sherd_test(compare_plain_test LABEL property LINK sherd TIMEOUT 120 SOURCES property/compare_plain_test.cpp)
