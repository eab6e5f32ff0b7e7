# Tensors drawn, reports, and what browsers make of them.

sherd_test(visualize_unit LABEL unit LINK sherd SOURCES unit/debug/report_test.cpp unit/debug/visualize_test.cpp
           ENVIRONMENT OMP_NUM_THREADS=1)
