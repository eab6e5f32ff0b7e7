// Uses sherd's arithmetic without libtorch.

#include <sherd/layout.h>

#include <iostream>

int main() {
  const sherd::Mesh mesh = sherd::parse_mesh("[dp=2, tp=2]");
  const sherd::TensorText tensor = sherd::parse_tensor("f32[5@dp, 4@tp]", mesh);
  const sherd::Layout layout{mesh, tensor.shape, tensor.placements};
  const sherd::Dims last = {1, 1};
  const std::string box = to_string(sherd::local_boxes(layout, last).at(0));
  std::cout << box << "\n";
  return box == "[3:5, 2:4]" ? 0 : 1;
}
