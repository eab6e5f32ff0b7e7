#pragma once
// A sharded parameter that operators use whole may have been brought together before they ask for it, with others.

#include <ATen/core/ATen_fwd.h>

#include <memory>

namespace sherd::detail {

struct DTensorMeta;
struct InputPlan;

class Gathering {
 public:
  virtual ~Gathering() = default;
  /// The local tensor that an operator wants of the parameter, or of a view of it (`use`); undefined where it is not
  /// what is brought together: then the operator moves the data itself.
  virtual at::Tensor take(const DTensorMeta& use, const InputPlan& how) = 0;
};
using GatheringPtr = std::shared_ptr<Gathering>;

}  // namespace sherd::detail
