# The rooms layout and picture.

sherd_test(layout_unit LABEL unit LINK core SOURCES
  unit/layout/box_test.cpp
  unit/layout/json_text_test.cpp
  unit/layout/layout_test.cpp
  unit/layout/mesh_test.cpp
  unit/layout/parse_mutation_test.cpp
  unit/layout/placement_test.cpp
  unit/layout/reordered_test.cpp
  unit/layout/tensor_text_test.cpp
  unit/layout/tiling_test.cpp
  unit/layout/torch_test.cpp)
sherd_test(layout_property LABEL property LINK core SOURCES property/layout_test.cpp)
sherd_test(layout_errors LABEL error LINK core SOURCES error/layout_errors_test.cpp)
sherd_test(picture_unit LABEL unit LINK core SOURCES unit/picture/chart_test.cpp unit/picture/picture_test.cpp)
