#pragma once
// What a DTensor waits for whose data are still on their way.

#include <ATen/core/Tensor.h>

#include <memory>

namespace sherd::detail {

class Arrival {
 public:
  Arrival() = default;
  virtual ~Arrival() = default;
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  /// This rank's part, once it is there. Throws what went wrong on the way, each time.
  virtual at::Tensor local() = 0;
};

using ArrivalPtr = std::shared_ptr<Arrival>;

}  // namespace sherd::detail
