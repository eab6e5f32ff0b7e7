#include "sherd/dtensor.h"
#include "sherd/picture.h"

namespace sherd {

std::string visualize(const at::Tensor& tensor) { return draw_text(layout_of(tensor)); }

}  // namespace sherd
