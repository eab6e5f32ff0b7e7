// Between ShardedTensors and DTensors, without copying.

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/errors.h"
#include "sharded/as_dtensor.h"
#include "sharded/leaves.h"
#include "sharded/moves.h"
#include "sherd/dtensor.h"
#include "tensor/checked.h"
#include "tensor/dispatch.h"

namespace sherd::sharded {
namespace {

using at::Tensor;
using detail::MeshForm;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The other container's memory, and back for the gradient.
struct Kept : torch::CustomClassHolder {
  detail::ShardedLayoutPtr layout;
  std::optional<MeshForm> form;
};

void keep(AutogradContext* context, detail::ShardedLayoutPtr layout, MeshForm form) {
  auto kept = c10::make_intrusive<Kept>();
  kept->layout = std::move(layout);
  kept->form = std::move(form);
  context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
}

const Kept& kept(AutogradContext* context) {
  return *static_cast<Kept*>(context->saved_data["kept"].toCapsule().get());
}

struct FromDTensor;

struct ToDTensor : Function<ToDTensor> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const MeshForm& form) {
    keep(context, detail::shared_layout(tensor), form);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return detail::shared_dtensor(tensor, form);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads);
};

struct FromDTensor : Function<FromDTensor> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const detail::Holders& holders) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor result = *detail::shared_sharded(tensor, holders);
    keep(context, detail::shared_layout(result), {mesh_of(tensor), placements_of(tensor)});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    const Kept& before = kept(context);
    const Tensor grad = is_sharded_tensor(grads[0]) ? grads[0] : detail::cut_out(grads[0], before.layout);
    return {ToDTensor::apply(grad, *before.form), Tensor()};
  }
};

variable_list ToDTensor::backward(AutogradContext* context, const variable_list& grads) {
  if (!grads[0].defined()) return {Tensor(), Tensor()};
  const Kept& before = kept(context);
  if (!is_dtensor(grads[0])) return {detail::cut_out(grads[0], before.layout), Tensor()};
  const Tensor grad = redistribute(grads[0], before.form->placements);
  return {FromDTensor::apply(grad, before.layout->holders), Tensor()};
}

[[noreturn]] void refuse(const char* operation, const char* why, const std::string& tensor, const std::string& help) {
  detail::throw_value_error(ErrorText(operation, why).fact("tensor", tensor).help(help));
}

}  // namespace

Tensor to_dtensor(const ShardedTensor& tensor) {
  const auto form = detail::mesh_form(detail::require_group("to_dtensor", tensor));
  if (!form) {
    refuse("to_dtensor", "the shards are not one cell of a grid on each rank", to_string(tensor),
           "reshard to a ChunkShardingSpec over the ranks of the group first");
  }
  detail::settle_leaf(tensor);
  return ToDTensor::apply(static_cast<const Tensor&>(tensor), *form);
}

Tensor to_dtensor(const ShardedTensor& tensor, const DeviceMesh& mesh, Placements placements) {
  constexpr const char* kOperation = "to_dtensor";
  const detail::ShardedLayout& layout = detail::require_group(kOperation, tensor);
  placements = detail::checked(kOperation, mesh, layout.size, std::move(placements));
  const Layout wanted{mesh.mesh(), layout.size, placements};
  const auto parts = layout.parts();
  std::map<int64_t, std::vector<Box>> boxes;
  for (size_t i = 0; i < parts.size(); ++i) {
    boxes[parts[i].rank].push_back(layout.spec.kind().shard(layout.size, i).box());
  }
  for (int64_t i = 0; i < mesh.size(); ++i) {
    const Dims coordinate = mesh.mesh().coordinate_at(i);
    const int64_t rank = mesh.mesh().rank_at(coordinate);
    const Box box{local_offset(wanted, coordinate), local_shape(wanted, coordinate)};
    const auto& has = boxes[rank];
    const bool nothing = numel(box) == 0 && has.empty();
    if (nothing || (has.size() == 1 && (has[0] == box || (numel(box) == 0 && has[0].size == box.size)))) continue;
    detail::throw_value_error(ErrorText(kOperation, "a rank holds another part than the placements give it")
                                  .fact("rank", std::to_string(rank))
                                  .fact("shard", has.empty() ? "none" : sherd::to_string(has[0]))
                                  .fact("placements", sherd::to_string(box) + " by " + sherd::to_string(placements))
                                  .help("sherd::redistribute(sherd::sharded::to_dtensor(tensor), mesh, placements)"));
  }
  detail::settle_leaf(tensor);
  return ToDTensor::apply(static_cast<const Tensor&>(tensor), MeshForm{mesh, std::move(placements)});
}

ShardedTensor from_dtensor(const Tensor& tensor) {
  constexpr const char* kOperation = "from_dtensor";
  const auto& spec = *detail::require_dtensor(kOperation, tensor).spec;
  const World world = spec.mesh.world();
  const auto ranks = spec.mesh.mesh().ranks();
  const detail::Holders holders =
      spec.mesh.coordinate() ? detail::Holders(world, world.group(ranks)) : detail::Holders(world, ranks);
  const auto shared = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return detail::shared_sharded(tensor, holders);
  }();
  if (!shared) {
    refuse(kOperation, "every element must lie on one rank", detail::describe(spec, tensor.scalar_type()),
           "sherd::redistribute(tensor, {sherd::Shard(0)}) first");
  }
  detail::hook_leaf(tensor);
  return ShardedTensor(FromDTensor::apply(tensor, holders));
}

Tensor collect_local_shard(const ShardedTensor& tensor) {
  tensor.local_tensor();  // throws where there is not exactly one
  const Tensor local = to_local(to_dtensor(tensor));
  const auto* chunks = tensor.sharding_spec().as<ChunkShardingSpec>();
  if (chunks == nullptr || local.size(chunks->dim()) != 1) return local;
  return local.squeeze(chunks->dim());
}

}  // namespace sherd::sharded
