#include "parallel/route_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "comm/observer.h"
#include "sherd/collectives.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct KeptGroup : torch::CustomClassHolder {
  explicit KeptGroup(Group g) : group(std::move(g)) {}
  Group group;
};

std::vector<int64_t> times(const std::vector<int64_t>& rows, int64_t width) {
  std::vector<int64_t> numels = rows;
  for (int64_t& n : numels) n *= width;
  return numels;
}

struct RouteRows : Function<RouteRows> {
  static Tensor forward(AutogradContext* context, const Tensor& rows, const Group& group,
                        const std::vector<int64_t>& give, const std::vector<int64_t>& take) {
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<KeptGroup>(group));
    context->saved_data["give"] = give;
    context->saved_data["take"] = take;
    const Tensor in = rows.contiguous();
    std::vector<int64_t> sizes = in.sizes().vec();
    sizes[0] = std::accumulate(take.begin(), take.end(), int64_t{0});
    const Tensor out = at::empty(sizes, in.options());
    const int64_t width = c10::multiply_integers(sizes.begin() + 1, sizes.end());
    const CauseScope cause("expert parallel");
    all_to_all(group, out, in, times(take, width), times(give, width)).wait();
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Group group = static_cast<KeptGroup*>(context->saved_data["group"].toCapsule().get())->group;
    const Tensor back = RouteRows::apply(grads[0], group, context->saved_data["take"].toIntVector(),
                                         context->saved_data["give"].toIntVector());
    return {back, Tensor(), Tensor(), Tensor()};
  }
};

struct Tied : Function<Tied> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const at::TensorList& others) {
    // Their gradients come as zeros to where they were made, by themselves, where no others come: see
    // materialize_grads.
    context->saved_data["others"] = static_cast<int64_t>(others.size());
    return tensor;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list result(1 + static_cast<size_t>(context->saved_data["others"].toInt()));
    result[0] = grads[0];
    return result;
  }
};

}  // namespace

Tensor route_rows(const Tensor& rows, const Group& group, const std::vector<int64_t>& give,
                  const std::vector<int64_t>& take) {
  return RouteRows::apply(rows, group, give, take);
}

Tensor tied_to(const Tensor& tensor, const std::vector<Tensor>& others) {
  return others.empty() ? tensor : Tied::apply(tensor, at::TensorList(others));
}

}  // namespace sherd::detail
