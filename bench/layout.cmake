sherd_bench(layout LINK core SOURCES layout_bench.cpp)
