#pragma once
// The kernel of one operator with the C++ signature that torch gives it. See typed_kernels.h.

#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/ops/view_ops.h>

#include <tuple>
#include <utility>

#include "tensor/call_key.h"
#include "tensor/dispatch.h"
#include "tensor/op_kernel.h"
#include "tensor/view_replay.h"

namespace sherd::detail {

/// The dispatch keys of an ordinary tensor on a CPU, and on a GPU.
extern const uint64_t kPlainCpuKeys;
extern const uint64_t kPlainCudaKeys;
/// The keys under which their kernels are registered.
extern const c10::DispatchKeySet kCpuKernels;
extern const c10::DispatchKeySet kCudaKernels;

/// Reads the arguments of a call: its key, and whether all its tensors are ready to be used as they are.
class CallScan {
 public:
  explicit CallScan(const OpKernel* kernel) { key.add(reinterpret_cast<uint64_t>(kernel)); }

  void operator()(const at::Tensor& tensor) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    DTensorMeta* meta = meta_of(impl);
    add_tensor(key, impl, meta);
    const c10::TensorImpl* local = meta == nullptr ? impl : meta->local.unsafeGetTensorImpl();
    const uint64_t keys = local->key_set().raw_repr();
    all_keys |= keys;
    shared_keys &= keys;
    if (meta == nullptr) {
      if (impl->autograd_meta() != nullptr && !has_meta(impl)) hook_plain(tensor);
      return;
    }
    if (meta->origin || meta->arrival) ready = false;
    if (impl->autograd_meta() != nullptr) hook_leaf(tensor);
  }
  void operator()(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      (*this)(*tensor);
    } else {
      key.add(kNoTensor);
    }
  }
  void operator()(const at::ITensorListRef& list) {
    key.add(kTensorList + list.size());
    for (const at::Tensor& tensor : list) (*this)(tensor);
  }
  template <class T>
  void operator()(const T& value) {
    add_plain(key, value);
  }

  /// What names the kernel that all local tensors, ordinary ones of one device, call for; else null.
  const c10::DispatchKeySet* kernel_keys() const {
    if (all_keys != shared_keys) return nullptr;
    if (all_keys == kPlainCpuKeys) return &kCpuKernels;
    return all_keys == kPlainCudaKeys ? &kCudaKernels : nullptr;
  }

  PlanKey key;
  bool ready = true;
  uint64_t all_keys = 0;  // of the local tensors
  uint64_t shared_keys = ~uint64_t{0};
};

/// The local tensors of a list, while the call lasts.
struct LocalList {
  explicit LocalList(const at::ITensorListRef& list) {
    for (const at::Tensor& tensor : list) {
      const DTensorMeta* meta = meta_of(tensor);
      locals.push_back(meta != nullptr ? meta->local : tensor);
    }
  }
  operator at::ITensorListRef() const { return at::ArrayRef<at::Tensor>(locals); }  // NOLINT: passed as the list is
  c10::SmallVector<at::Tensor, 4> locals;
};

// What takes the place of an argument, the index-th, in the local call.
inline at::Tensor& local_argument(const OpPlan&, size_t, at::Tensor& tensor) {
  DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr ? meta->local : tensor;
}
inline const at::Tensor& local_argument(const OpPlan&, size_t, const at::Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr ? meta->local : tensor;
}
inline std::optional<at::Tensor> local_argument(const OpPlan&, size_t, const std::optional<at::Tensor>& tensor) {
  const DTensorMeta* meta = tensor.has_value() ? meta_of(*tensor) : nullptr;
  return meta != nullptr ? std::optional(meta->local) : tensor;
}
inline LocalList local_argument(const OpPlan&, size_t, const at::ITensorListRef& list) { return LocalList(list); }
inline c10::SymIntArrayRef local_argument(const OpPlan& plan, size_t index, c10::SymIntArrayRef sizes) {
  for (const SizeEdit& edit : plan.edits) {
    if (static_cast<size_t>(edit.argument) == index) return c10::fromIntArrayRefSlow(edit.sizes);
  }
  return sizes;
}
inline c10::SymInt local_argument(const OpPlan& plan, size_t index, c10::SymInt number) {
  for (const IntEdit& edit : plan.int_edits) {
    if (static_cast<size_t>(edit.argument) == index) return edit.value;
  }
  return number;
}
inline std::optional<c10::SymInt> local_argument(const OpPlan& plan, size_t index, std::optional<c10::SymInt> number) {
  for (const IntEdit& edit : plan.int_edits) {
    if (static_cast<size_t>(edit.argument) == index) return c10::SymInt(edit.value);
  }
  return number;
}
template <class T>
const T& local_argument(const OpPlan&, size_t, const T& value) {
  return value;
}

/// `Op` is torch's own description of an operator: at::_ops::add_Tensor.
template <class Op, class Signature = typename Op::schema>
class TypedOpKernel;

template <class Op, class Return, class First, class... Rest>
class TypedOpKernel<Op, Return(First, Rest...)> final : public c10::OperatorKernel {
 public:
  explicit TypedOpKernel(const c10::OperatorHandle& op) : op_(op) {
    auto general = std::make_unique<OpKernel>();
    kernel_ = general.get();
    general_ = c10::BoxedKernel::makeFromFunctor(std::move(general));
  }

  Return operator()(c10::DispatchKeySet keys, First first, Rest... rest) {
    CallScan scan(kernel_);
    scan(first);
    (scan(rest), ...);
    ThreadCache& cache = thread_cache();
    OpPlan* plan = cache.find(scan.key);
    if (plan == nullptr || !plan->direct || !scan.ready || !lies_right(first)) {
      return c10::impl::BoxedKernelWrapper<Return(First, Rest...)>::call(
          general_, op_, keys, std::forward<First>(first), std::forward<Rest>(rest)...);
    }
    const UnderWay under_way(cache);
    return run(*plan, scan.kernel_keys(), std::make_index_sequence<sizeof...(Rest)>(), first, rest...);
  }

 private:
  // The operator on local tensors. Ordinary ones of one device need not ask the dispatcher which kernel is theirs.
  template <class... Locals>
  static decltype(auto) call_local(const c10::DispatchKeySet* kernel, Locals&&... locals) {
    return kernel != nullptr ? Op::redispatch(*kernel, std::forward<Locals>(locals)...)
                             : Op::call(std::forward<Locals>(locals)...);
  }

  template <size_t... I>
  Return run(OpPlan& plan, const c10::DispatchKeySet* kernel, std::index_sequence<I...>, First first, Rest... rest) {
    if constexpr (std::is_same_v<Return, at::Tensor&>) {
      at::Tensor& local = local_argument(plan, 0, first);
      call_local(kernel, local, local_argument(plan, I + 1, rest)...);
      note_write(local, *plan.mesh);
      return first;
    } else if constexpr (std::is_same_v<Return, at::Tensor>) {
      at::Tensor local = call_local(kernel, local_argument(plan, 0, first), local_argument(plan, I + 1, rest)...);
      if constexpr (std::is_same_v<First, const at::Tensor&>) {
        if (plan.is_view) {
          share_version(local, local_argument(plan, 0, first));
          return as_view_of(first, wrap_one(plan, std::move(local), 0));
        }
      }
      return wrap_one(plan, std::move(local), 0);
    } else {
      const Return locals = call_local(kernel, local_argument(plan, 0, first), local_argument(plan, I + 1, rest)...);
      return wrap_all(plan, locals, std::make_index_sequence<std::tuple_size_v<Return>>());
    }
  }

  // A part that does not lie in memory as the whole does may have no view of the kind that the whole has.
  static bool lies_right([[maybe_unused]] const std::decay_t<First>& first) {
    if constexpr (std::is_same_v<Op, at::_ops::view>) {
      const DTensorMeta* meta = meta_of(first);
      return meta == nullptr || meta->local.is_contiguous();
    } else {
      return true;
    }
  }

  static at::Tensor as_view_of(const at::Tensor& viewed, at::Tensor view) {
    const DTensorMeta* from = meta_of(viewed);
    DTensorMeta* meta = meta_of(view);
    meta->is_cut = from != nullptr && (from->is_cut || view.numel() < viewed.numel());
    if (meta->is_cut && meta->spec->is_whole) {
      place_view({*from->spec, from->local, viewed.storage_offset(), !from->is_cut || from->is_placed}, view);
    }
    if (meta->spec->gathers != 0) meta->gathered = from->gathered;
    choose_replay([&] { return from != nullptr && geometry_tells(*from, *meta); });
    return view;
  }

  template <size_t... I>
  Return wrap_all(OpPlan& plan, const Return& locals, std::index_sequence<I...>) {
    return Return{wrap_one(plan, std::get<I>(locals), I)...};
  }
  at::Tensor wrap_one(OpPlan& plan, at::Tensor local, size_t i) {
    if (!local.defined()) return local;
    const SpecPtr* checked = checked_spec(plan, i, 0);
    const SpecPtr& spec = checked != nullptr ? *checked : find_spec(kernel_->info(op_), plan, local, i, 0);
    return wrap(spec, std::move(local));
  }

  const c10::OperatorHandle op_;
  c10::BoxedKernel general_;
  OpKernel* kernel_ = nullptr;
};

}  // namespace sherd::detail
