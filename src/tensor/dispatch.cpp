// Where the kernels of operators on DTensors are registered.

#include "tensor/dispatch.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>

#include "comm/errors.h"
#include "tensor/meta.h"
#include "tensor/op_kernel.h"
#include "tensor/typed_kernels.h"

namespace sherd::detail {
namespace {

using torch::jit::Stack;

bool takes_kernel(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (!op.hasSchema() || name.starts_with("prim::") || name.starts_with("prims::")) return false;
  // Composite operators decompose into others before they come here.
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Kept for ever: at exit the dispatcher may be gone before us. One list for all, which is also read, so that the
// compiler keeps the pointer and a leak checker finds what hangs on it.
std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* list = new std::vector<c10::RegistrationHandleRAII>;
  return *list;
}

void add_kernel(const c10::OperatorName& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (auto typed = typed_kernel_for(name)) {
    registrations().push_back(
        dispatcher.registerImpl(name, kKey, std::move(typed->kernel), typed->signature, nullptr, "sherd"));
    return;
  }
  registrations().push_back(
      dispatcher.registerImpl(name, kKey, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<OpKernel>()),
                              std::nullopt, nullptr, "sherd"));
}

// Operators that were registered after sherd was loaded. The dispatcher tells of them while it holds its lock, so
// their kernel is added later: before the next plan is made, or when the fallback below meets one.
struct Latecomers final : c10::OpRegistrationListener {
  struct List {
    std::mutex mutex;
    std::vector<c10::OperatorName> names;
    std::atomic<bool> any{false};
    bool listening = false;
  };
  static List& list() {
    static auto* value = new List;
    return *value;
  }
  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    const std::lock_guard lock(list().mutex);
    if (!list().listening) return;  // being told of those that were there already
    list().names.push_back(op.operator_name());
    list().any = true;
  }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}

  static void add_kernels() {
    if (!list().any.load(std::memory_order_acquire)) return;
    static std::mutex one_at_a_time;
    const std::lock_guard turn(one_at_a_time);
    std::vector<c10::OperatorName> names;
    {
      const std::lock_guard lock(list().mutex);
      names.swap(list().names);
    }
    for (const c10::OperatorName& name : names) {
      const auto op = c10::Dispatcher::singleton().findOp(name);
      if (op && takes_kernel(*op)) add_kernel(name);
    }
    // Only now: a thread that saw nothing to do while the kernels are being added would go on without them.
    const std::lock_guard lock(list().mutex);
    list().any = !list().names.empty();
  }
};

// Reached by operators that have no kernel of their own yet.
void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Latecomers::add_kernels();
  if (!takes_kernel(op)) {
    throw c10::NotImplementedError(ErrorText(op.operator_name().name, "not an operator that DTensors go through")
                                       .fact("operator", c10::toString(op.operator_name()))
                                       .help("sherd::to_local(tensor) or sherd::full_tensor(tensor) first")
                                       .str());
  }
  op.callBoxed(stack);
}

struct Install {
  Install() {
    auto& dispatcher = c10::Dispatcher::singleton();
    registrations().push_back(dispatcher.addRegistrationListener(std::make_unique<Latecomers>()));
    {
      const std::lock_guard lock(Latecomers::list().mutex);
      Latecomers::list().listening = true;
    }
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findOp(name);
      if (op && takes_kernel(*op)) add_kernel(name);
    }
    registrations().push_back(
        dispatcher.registerFallback(kKey, c10::KernelFunction::makeFromBoxedFunction<&fall_back>(), "sherd"));
  }
} install;

// Operators without a derivative go through, as they do for every other backend: torch has no such fallback for ours.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse2, library) {
  library.fallback(torch::autograd::basicAutogradNotImplementedFallback());
}

}  // namespace

void add_kernels_of_new_operators() { Latecomers::add_kernels(); }

}  // namespace sherd::detail
