#include "tensor/op_kernel.h"

#include "tensor/boxes_meta.h"
#include "tensor/call_key.h"
#include "tensor/compare_plain.h"
#include "tensor/composite.h"
#include "tensor/dispatch.h"
#include "tensor/joint_mesh.h"
#include "tensor/rewrites.h"
#include "tensor/view_replay.h"

namespace sherd::detail {
namespace {

using torch::jit::Stack;

constexpr size_t kMaxPlans = 1 << 15;

PlanKey key_of(const OpKernel& kernel, const OpInfo& info, const Stack& stack) {
  PlanKey key;
  key.add(reinterpret_cast<uint64_t>(&kernel));
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    switch (info.arguments[i].kind) {
      case ArgumentKind::tensor:
        if (value.isTensor()) {
          add_tensor(key, value.toTensor());
        } else {
          key.add(kNoTensor);
        }
        break;
      case ArgumentKind::tensor_list:
        add_tensor_list(key, value);
        break;
      case ArgumentKind::keyed:
        add_value(key, value);
        break;
      case ArgumentKind::ignored:
        break;
    }
  }
  return key;
}

std::unique_ptr<OpPlan> plan_anew(const c10::OperatorHandle& op, const OpInfo& info, const Stack& stack) {
  add_kernels_of_new_operators();
  return make_plan(op, info, stack);
}

OpPlan* miss(const c10::OperatorHandle& op, const OpInfo& info, const PlanKey& key, const Stack& stack) {
  ThreadCache& cache = thread_cache();
  const uint64_t version = rules::rules_version();
  const bool stale = cache.rules_version != version || cache.plans.size() >= kMaxPlans;
  if (stale && cache.depth == 0) {  // plans further up the stack are in use
    cache.plans.clear();
    cache.rules_version = version;
  }
  return cache.plans.insert(key, plan_anew(op, info, stack));
}

void run(const OpKernel& kernel, const c10::OperatorHandle& op, const OpInfo& what, Stack& stack) {
  if (what.fills_lists) return execute_into_lists(op, what, stack);
  if (what.is_foreach) {
    if (has_boxes(what, stack)) return boxes_kernel(op, what, stack);
    execute_foreach(op, what, stack);
    return;
  }
  const PlanKey key = key_of(kernel, what, stack);
  ThreadCache& cache = thread_cache();
  OpPlan* plan = cache.find(key);
  if (plan == nullptr) {
    if (has_boxes(what, stack)) return boxes_kernel(op, what, stack);
    if (const auto mesh = meeting_mesh(what, stack)) {
      settle_leaves(what, stack);
      bring_to_mesh(what, stack, *mesh);
      return run(kernel, op, what, stack);
    }
    // Plans of calls whose plain tensors are compared are not kept, so that each such call comes by here.
    bool once = compare_plain(op, what, stack);
    // A call that was planned before was not rewritten then, and is not now.
    if (what.rewrite != nullptr || what.composite) settle_leaves(what, stack);
    if (what.rewrite != nullptr && !rules::has_user_rule(what.name, what.base_overload)) {
      const Rewriting scope(what);
      if (what.rewrite(op, stack)) return;
      once |= was_not_for_these_data();
    }
    if (what.composite && decompose(op, what, stack)) return;
    if (once) {
      const auto for_once = plan_anew(op, what, stack);
      const UnderWay under_way(cache);
      return execute(op, what, *for_once, stack);
    }
    plan = miss(op, what, key, stack);
  }
  const UnderWay under_way(cache);
  execute(op, what, *plan, stack);
}

}  // namespace

void settle_leaves(const OpInfo& info, const Stack& stack) {
  for (size_t i = stack.size() - info.arguments.size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) settle(stack[i].toTensor());
    if (!stack[i].isTensorList()) continue;
    for (const at::Tensor& tensor : stack[i].toTensorVector()) settle(tensor);
  }
}

thread_local ThreadCache* thread_cache_pointer = nullptr;

ThreadCache& make_thread_cache() {
  thread_local ThreadCache cache;
  thread_cache_pointer = &cache;
  return cache;
}

const OpInfo& OpKernel::info(const c10::OperatorHandle& op) {
  OpInfo* known = info_.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  auto* fresh = new OpInfo(op);
  if (info_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *known;
}

void OpKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OpInfo& what = info(op);
  run(*this, op, what, *stack);
  if (what.is_view) choose_replay([] { return false; });
}

BoxesKernel boxes_kernel = nullptr;

size_t cached_plans() { return thread_cache().plans.size(); }
void forget_plans() { thread_cache().plans.clear(); }

}  // namespace sherd::detail
