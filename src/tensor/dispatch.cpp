// The one kernel behind every operator on DTensors, and where it is registered.

#include "tensor/dispatch.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>

#include "comm/errors.h"
#include "rules/registry.h"
#include "tensor/meta.h"
#include "tensor/plan_cache.h"

namespace sherd::detail {
namespace {

using torch::jit::Stack;

constexpr size_t kMaxPlans = 1 << 15;

struct ThreadCache {
  PlanCache plans;
  uint64_t rules_version = 0;
  int depth = 0;
};

ThreadCache& thread_cache() {
  thread_local ThreadCache cache;
  return cache;
}

// Plain tensors count as replicated; what matters of them is their shape.
inline void add_tensor(PlanKey& key, const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    key.add(1);
    return;
  }
  if (const DTensorMeta* meta = meta_of(impl)) {
    key.add(reinterpret_cast<uint64_t>(meta->spec.get()));
    return;
  }
  key.add((uint64_t{1} << 62) + static_cast<uint64_t>(impl->dim()));
  for (const int64_t n : impl->sizes()) key.add(static_cast<uint64_t>(n));
}

void add_value(PlanKey& key, const c10::IValue& value) {
  if (value.isInt()) {
    key.add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    key.add(value.toBool() ? 3 : 2);
  } else if (value.isIntList()) {
    const auto list = value.toIntList();
    key.add((uint64_t{1} << 61) + list.size());
    for (const int64_t n : list) key.add(static_cast<uint64_t>(n));
  } else if (value.isString()) {
    key.add(std::hash<std::string>()(value.toStringRef()));
  } else if (value.isBoolList()) {
    for (const bool flag : value.toBoolList()) key.add(flag ? 3 : 2);
  } else if (value.isDevice()) {
    key.add(static_cast<uint64_t>(value.toDevice().type()));
  } else {
    key.add(4);
  }
}

// False where an element of a list is not a tensor or nothing.
void add_list(PlanKey& key, const c10::IValue& value) {
  if (!value.isList()) {
    key.add(5);
    return;
  }
  const auto list = value.toListRef();
  key.add((uint64_t{1} << 60) + list.size());
  for (const c10::IValue& element : list) {
    if (element.isTensor()) {
      add_tensor(key, element.toTensor());
    } else {
      key.add(1);
    }
  }
}

// The boxed kernel of one operator. What it knows of its operator is read on the first call.
class OpKernel final : public c10::OperatorKernel {
 public:
  ~OpKernel() override { delete info_.load(); }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const OpInfo& info = this->info(op);
    if (info.is_foreach) {
      execute_foreach(op, info, *stack);
      return;
    }
    if (info.rewrite != nullptr && info.rewrite(op, *stack)) return;
    PlanKey key;
    key.add(reinterpret_cast<uint64_t>(this));
    const size_t base = stack->size() - info.arguments.size();
    for (size_t i = 0; i < info.arguments.size(); ++i) {
      const c10::IValue& value = (*stack)[base + i];
      switch (info.arguments[i].kind) {
        case ArgumentKind::tensor:
          if (value.isTensor()) {
            add_tensor(key, value.toTensor());
          } else {
            key.add(1);
          }
          break;
        case ArgumentKind::tensor_list:
          add_list(key, value);
          break;
        case ArgumentKind::keyed:
          add_value(key, value);
          break;
        case ArgumentKind::ignored:
          break;
      }
    }
    ThreadCache& cache = thread_cache();
    OpPlan* plan = cache.plans.find(key);
    if (plan == nullptr || cache.rules_version != rules::rules_version()) plan = miss(op, info, key, *stack);
    ++cache.depth;
    struct Leave {
      ThreadCache& cache;
      ~Leave() { --cache.depth; }
    } leave{cache};
    execute(op, info, *plan, *stack);
  }

 private:
  const OpInfo& info(const c10::OperatorHandle& op) {
    OpInfo* known = info_.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    auto* fresh = new OpInfo(op);
    if (info_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *known;
  }

  static OpPlan* miss(const c10::OperatorHandle& op, const OpInfo& info, const PlanKey& key, const Stack& stack) {
    // Autograd must replay a write to a view through the view itself: by geometry alone it would be wrong.
    c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
    add_kernels_of_new_operators();
    ThreadCache& cache = thread_cache();
    const uint64_t version = rules::rules_version();
    const bool stale = cache.rules_version != version || cache.plans.size() >= kMaxPlans;
    if (stale && cache.depth == 0) {  // plans further up the stack are in use
      cache.plans.clear();
      cache.rules_version = version;
    }
    return cache.plans.insert(key, make_plan(op, info, stack));
  }

  std::atomic<OpInfo*> info_{nullptr};
};

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
  registrations().push_back(c10::Dispatcher::singleton().registerImpl(
      name, kKey, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<OpKernel>()), std::nullopt, nullptr,
      "sherd"));
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
} const install;

}  // namespace

void add_kernels_of_new_operators() { Latecomers::add_kernels(); }

size_t cached_plans() { return thread_cache().plans.size(); }
void forget_plans() { thread_cache().plans.clear(); }

}  // namespace sherd::detail
