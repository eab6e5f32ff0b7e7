#include "random/device_fill.h"

namespace sherd::detail {

bool fill_on_device(const at::Tensor&, Stored, const Positions&, const Draw&) { return false; }
bool drop_on_device(const at::Tensor&, const at::Tensor&, const at::Tensor&, Stored, const Positions&, const Dropout&) {
  return false;
}
bool count_on_device(CountKind, const at::Tensor&, const at::Tensor&, const at::Tensor&, const Positions&, uint64_t,
                     uint64_t) {
  return false;
}

}  // namespace sherd::detail
