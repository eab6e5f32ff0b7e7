#include "tensor/attention_scope.h"

#include <utility>

namespace sherd::detail {
namespace {

thread_local AttentionScope* innermost = nullptr;

}  // namespace

AttentionScope::AttentionScope(AttentionHandler handler)
    : handler_(std::move(handler)), outer_(std::exchange(innermost, this)) {}

AttentionScope::~AttentionScope() { innermost = outer_; }

std::optional<at::Tensor> AttentionScope::answer(const AttentionCall& call) {
  if (innermost == nullptr) return std::nullopt;
  // The handler may call attention itself, and means the operator then.
  AttentionScope* const asked = std::exchange(innermost, nullptr);
  struct Restore {
    AttentionScope* scope;
    ~Restore() { innermost = scope; }
  } restore{asked};
  return asked->handler_(call);
}

}  // namespace sherd::detail
