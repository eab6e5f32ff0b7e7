#pragma once
// The one kernel behind every operator on DTensors, boxed, and the plans that it keeps.

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>

#include "rules/registry.h"
#include "tensor/op_info.h"
#include "tensor/plan_cache.h"

namespace sherd::detail {

struct ThreadCache {
  PlanCache plans;
  uint64_t rules_version = 0;
  int depth = 0;  // calls under way: their plans are in use

  /// The plan kept under a key, or null where there is none that still holds.
  OpPlan* find(const PlanKey& key) const {
    if (rules_version != rules::rules_version()) return nullptr;
    return plans.find(key);
  }
};

/// This thread's plans. Found without a call into the loader: that would cost a tenth of a small operator.
ThreadCache& make_thread_cache();
extern thread_local ThreadCache* thread_cache_pointer __attribute__((tls_model("initial-exec")));
inline ThreadCache& thread_cache() {
  ThreadCache* cache = thread_cache_pointer;
  return cache != nullptr ? *cache : make_thread_cache();
}

/// Marks a call as under way.
class UnderWay {
 public:
  explicit UnderWay(ThreadCache& cache) : cache_(cache) { ++cache_.depth; }
  ~UnderWay() { --cache_.depth; }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  ThreadCache& cache_;
};

/// What it knows of its operator is read on the first call.
class OpKernel final : public c10::OperatorKernel {
 public:
  ~OpKernel() override { delete info_.load(); }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

  const OpInfo& info(const c10::OperatorHandle& op);

 private:
  std::atomic<OpInfo*> info_{nullptr};
};

}  // namespace sherd::detail
