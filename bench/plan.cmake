sherd_bench(plan LINK core SOURCES plan_bench.cpp)
target_include_directories(bench_plan PRIVATE ${PROJECT_SOURCE_DIR}/src)
