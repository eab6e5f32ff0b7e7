sherd_bench(spawn LINK sherd SOURCES spawn_bench.cpp)
