sherd_bench(plan LINK core SOURCES plan_bench.cpp)
