#include "tensor/composite.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>

#include "rules/registry.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Those whose kernels call operators and nothing else. Others of the kind read strides or memory (as_strided_scatter,
// _lazy_clone), write into tensors that they made themselves by out= (linalg_lstsq), or draw numbers; a DTensor would
// not survive that, and gathering it is right.
constexpr std::string_view kOperatorsAlone[] = {
    "aten::_chunk_cat",
    "aten::_euclidean_dist",
    "aten::_is_all_true",
    "aten::_is_any_true",
    "aten::_trilinear",
    "aten::_unsafe_masked_index",
    "aten::_unsafe_masked_index_put_accumulate",
    "aten::affine_grid_generator",
    "aten::allclose",
    "aten::binary_cross_entropy_with_logits",
    "aten::block_diag",
    "aten::count_nonzero",
    "aten::dist",
    "aten::floor_divide",
    "aten::masked_scatter",
    "aten::masked_scatter_backward",
    "aten::put",
    "aten::rot90",
    "aten::rrelu_with_noise_backward",
};

// The operators that this thread is decomposing.
thread_local std::vector<const OpInfo*> under_way;

struct Decomposing {
  explicit Decomposing(const OpInfo& info) { under_way.push_back(&info); }
  ~Decomposing() { under_way.pop_back(); }
  Decomposing(const Decomposing&) = delete;
  Decomposing& operator=(const Decomposing&) = delete;
};

// The mesh of the first tensor that is not whole on every rank.
std::optional<DeviceMesh> sharded_mesh(const OpInfo& info, const Stack& stack) {
  std::optional<DeviceMesh> found;
  const auto look = [&](const c10::IValue& value) {
    const DTensorMeta* meta = value.isTensor() ? meta_of(value.toTensor()) : nullptr;
    if (meta == nullptr || found) return;
    const Placements& placements = meta->spec->placements;
    if (!std::all_of(placements.begin(), placements.end(), is_replicate)) found = meta->spec->mesh;
  };
  for (size_t i = stack.size() - info.arguments.size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) look(stack[i]);
    if (stack[i].isTensorList()) {
      for (const Tensor& tensor : stack[i].toTensorVector()) look(tensor);
    }
  }
  return found;
}

// A result that the kernel made itself is plain, and the same on every rank of the mesh.
Tensor distributed(const Tensor& result, const DeviceMesh& mesh) {
  if (!result.defined() || meta_of(result) != nullptr) return result;
  const Placements whole(static_cast<size_t>(mesh.ndim()), Replicate());
  const SpecPtr spec = spec_for(mesh, whole, result.sizes().vec(), result);
  return wrap(spec, mesh.coordinate() ? result : at::empty({0}, result.options()));
}

}  // namespace

std::optional<c10::DispatchKey> composite_kernel_of(const c10::OperatorHandle& op) {
  const auto* known = std::find(std::begin(kOperatorsAlone), std::end(kOperatorsAlone), op.operator_name().name);
  if (known == std::end(kOperatorsAlone) || op.schema().is_mutable()) return std::nullopt;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;  // not what a dense tensor would run
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return key;
  }
  return std::nullopt;
}

bool decompose(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  if (!info.composite || std::find(under_way.begin(), under_way.end(), &info) != under_way.end()) return false;
  const auto mesh = sharded_mesh(info, stack);
  if (!mesh || rules::find_rule(info.call(op.schema(), stack))) return false;
  const Decomposing scope(info);
  op.callBoxedForDispatchKey(*info.composite, stack);
  const size_t count = info.return_of.size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      stack[i] = distributed(stack[i].toTensor(), *mesh);
    } else if (stack[i].isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : stack[i].toTensorVector()) list.push_back(distributed(tensor, *mesh));
      stack[i] = std::move(list);
    }
  }
  return true;
}

}  // namespace sherd::detail
