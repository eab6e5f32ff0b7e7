#pragma once
// Watches a thread for the CommDebugModes that live in it: which operators and causes are under way, one in the other,
// and which collectives they call.
//
// Operators are heard of through torch's RecordFunction, so the dispatch knows nothing of this. What a backward pass
// does is found by the number that autograd gives to an operator and to the node that is its derivative.

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/observer.h"
#include "debug/debug_log.h"
#include "tensor/move_listener.h"
#include "tensor/spec.h"

namespace sherd::detail {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class Tracker final : public CommObserver, public MoveListener {
 public:
  /// Starts to keep a log. `names` are those of parameters.
  static void start(std::shared_ptr<DebugLog> log, const NamedTensors& names);
  static void stop(const std::shared_ptr<DebugLog>& log);

  /// Why something is communicated.
  struct Reason {
    std::string operation;
    std::string called_by;
    std::vector<std::string> parameters;
    std::string scope;
    bool backward = false;
    int64_t operand = -1;
    MovingCallPtr call;
  };

  size_t begin(ObservedCall call) override;
  void end(size_t call) override;
  void enter(const Cause& cause) override;
  void leave() override;
  std::shared_ptr<CommObserver> in_background() override;

  void operator_moves(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan,
                      const torch::jit::Stack& stack) override;
  void operand_moves(int64_t input) override;

 private:
  friend struct BackgroundWatch;
  struct Frame {
    enum class Kind : uint8_t { op, cause, node };
    Kind kind = Kind::op;
    std::string name = {};
    std::vector<std::string> parameters = {};
    std::string scope = {};
    bool backward = false;
    int64_t start_ns = 0;
    int64_t operand = -1;
    MovingCallPtr call = {};
  };
  struct Parameter {
    std::string name;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // so that its address is not given to another
    SpecPtr spec;                                      // null where it is a plain tensor
  };
  using OpenRecords = std::vector<std::pair<std::shared_ptr<DebugLog>, size_t>>;
  struct Context {
    std::vector<std::string> parameters;
    std::string scope;
  };
  struct Depth;

  static std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& fn);
  static void operator_ends(const at::RecordFunction& fn, at::ObserverContext* context);

  void install();
  void uninstall();
  size_t begin(ObservedCall call, Reason why, bool background);
  Reason reason() const;
  const Parameter* find(const c10::StorageImpl* memory) const;
  void add_parameters(const at::Tensor& tensor, std::vector<std::string>& names) const;
  void push(Frame frame, int64_t sequence);
  void pop(size_t depth);

  std::vector<Frame> frames_;
  std::unordered_map<const c10::StorageImpl*, Parameter> parameters_;
  std::unordered_map<int64_t, Context> by_sequence_;  // of forward operators
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
  CommObserver* observer_before_ = nullptr;
  bool multithreaded_before_ = true;

  std::mutex mutex_;  // for what follows: threads in the background come here
  std::vector<std::shared_ptr<DebugLog>> logs_;
  std::unordered_map<size_t, OpenRecords> open_;
  size_t next_ = 0;
};

/// What NamedScopes call what this thread does now; empty where there are none.
const std::string& current_scope();

/// The module that has parameters of these names: what all their paths have in common.
std::string module_of(const std::vector<std::string>& parameters);

}  // namespace sherd::detail
