# The rooms layout and picture.

sherd_test(layout_property LABEL property LINK core SOURCES property/layout_test.cpp)
