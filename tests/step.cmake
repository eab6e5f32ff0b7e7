# What a step need not do.
sherd_test(lone_rank_test LABEL property LINK sherd SOURCES property/lone_rank_test.cpp)
