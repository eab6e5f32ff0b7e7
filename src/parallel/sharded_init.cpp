#include "sherd/sharded_init.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "sherd/dtensor.h"
#include "tensor/wishes.h"

namespace sherd {
namespace {

using at::Tensor;
using Below = c10::impl::ExcludeDispatchKeyGuard;

// A key that torch leaves alone, above all others; it is in the thread's set while a ShardedInit lives. Everything that
// an operator does by itself is done without it.
constexpr c10::DispatchKey kInitKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local ShardedInit* innermost = nullptr;

// What torch's factories are given beside the sizes.
struct Given {
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::Layout> layout;
  std::optional<c10::Device> device;
  std::optional<bool> pinned;

  at::TensorOptions options() const {
    return at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pinned);
  }
};

// Placed by nobody yet.
void mark_born(const Tensor& tensor, const DeviceMesh& mesh) {
  detail::set_wishes(tensor, std::make_shared<detail::Wishes>(detail::Wishes{.mesh = mesh, .is_born = true}));
}

// `whole` makes the tensor as torch does, `part` a DTensor.
template <class Whole, class Part>
Tensor make(c10::SymIntArrayRef sizes, const Given& given, const Whole& whole, const Part& part) {
  const Below below(kInitKey);
  const at::TensorOptions options = given.options();
  const bool numbers = c10::isFloatingType(c10::typeMetaToScalarType(options.dtype()));
  if (innermost == nullptr || sizes.empty() || !numbers || options.layout() != c10::kStrided) return whole(options);
  const DeviceMesh& mesh = innermost->mesh();
  const Tensor tensor =
      part(C10_AS_INTARRAYREF_SLOW(sizes), mesh, Placements(static_cast<size_t>(mesh.ndim()), Shard(0)), options);
  mark_born(tensor, mesh);
  return tensor;
}

Tensor born_empty(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                  std::optional<c10::Device> device, std::optional<bool> pinned,
                  std::optional<c10::MemoryFormat> format) {
  return make(
      sizes, {dtype, layout, device, pinned},
      [&](const at::TensorOptions& options) { return at::empty_symint(sizes, options, format); },
      [](const auto&... how) { return empty(how...); });
}

Tensor born_full(c10::SymIntArrayRef sizes, const at::Scalar& value, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pinned) {
  return make(
      sizes, {dtype, layout, device, pinned},
      [&](const at::TensorOptions& options) { return at::full_symint(sizes, value, options); },
      [&](at::IntArrayRef shape, const auto&... how) { return full(shape, value, how...); });
}

// Drawn in place, as the factories of random.h do.
Tensor drawn_rand(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options) {
  return empty(shape, mesh, std::move(placements), options).uniform_();
}
Tensor drawn_randn(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options) {
  return empty(shape, mesh, std::move(placements), options).normal_();
}

using Torch = Tensor (*)(c10::SymIntArrayRef, at::TensorOptions);
using Ours = Tensor (*)(at::IntArrayRef, const DeviceMesh&, Placements, at::TensorOptions);

template <Torch whole, Ours part>
Tensor born(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
            std::optional<c10::Device> device, std::optional<bool> pinned) {
  return make(
      sizes, {dtype, layout, device, pinned}, [&](const at::TensorOptions& options) { return whole(sizes, options); },
      part);
}

void others(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Below below(kInitKey);
  op.callBoxed(stack);
  // What is made of such tensors, torch::randn({4}) * 0.1 say, is one, too.
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size() && innermost != nullptr; ++i) {
    if (!(*stack)[i].isTensor()) continue;
    const Tensor tensor = (*stack)[i].toTensor();
    const bool fresh = is_dtensor(tensor) && mesh_of(tensor) == innermost->mesh() && !detail::wishes_of(tensor);
    if (fresh) mark_born(tensor, innermost->mesh());
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&others>());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("empty.memory_format", born_empty);
  library.impl("full", born_full);
  library.impl("zeros", born<&at::zeros_symint, &zeros>);
  library.impl("ones", born<&at::ones_symint, &ones>);
  library.impl("rand", born<&at::rand_symint, &drawn_rand>);
  library.impl("randn", born<&at::randn_symint, &drawn_randn>);
}

}  // namespace

ShardedInit::ShardedInit(const DeviceMesh& mesh) : mesh_(mesh), outer_(innermost) {
  innermost = this;
  if (outer_ == nullptr) c10::impl::tls_set_dispatch_key_included(kInitKey, true);
}

ShardedInit::~ShardedInit() {
  innermost = outer_;
  if (outer_ == nullptr) c10::impl::tls_set_dispatch_key_included(kInitKey, false);
}

}  // namespace sherd
