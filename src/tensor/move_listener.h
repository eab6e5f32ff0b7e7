#pragma once
// Who is told when an operator moves its operands by itself. Asked for on the way to a move alone, never where an
// operator runs on the parts as they are.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tensor/op_info.h"
#include "tensor/op_plan.h"

namespace sherd::detail {

class MoveListener {
 public:
  virtual ~MoveListener() = default;
  /// An operator is about to run by a plan that moves operands. The stack holds its arguments as they were given.
  virtual void operator_moves(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan,
                              const torch::jit::Stack& stack) = 0;
  /// What is communicated from now on moves this operand of it, counted as OpPlan::inputs are; -1: none any more.
  virtual void operand_moves(int64_t input) = 0;
};

/// This thread's, or null.
MoveListener* move_listener();
void set_move_listener(MoveListener* listener);

/// While it lives, an operand is being moved.
class OperandMove {
 public:
  explicit OperandMove(size_t input) : listener_(move_listener()) {
    if (listener_ != nullptr) listener_->operand_moves(static_cast<int64_t>(input));
  }
  ~OperandMove() {
    if (listener_ != nullptr && listener_ == move_listener()) listener_->operand_moves(-1);
  }
  OperandMove(const OperandMove&) = delete;
  OperandMove& operator=(const OperandMove&) = delete;

 private:
  MoveListener* listener_;
};

}  // namespace sherd::detail
