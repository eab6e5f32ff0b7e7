#pragma once
// Attention answered by someone else for a scope: how context parallelism, in a room below this one, gets to see the
// calls of unchanged modules.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

namespace sherd::detail {

/// The arguments of scaled_dot_product_attention.
struct AttentionCall {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const std::optional<at::Tensor>& mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  bool grouped = false;  // heads of the query share those of the key
};

/// The operator itself, whatever scope this thread is in.
at::Tensor ordinary_attention(const AttentionCall& call);

/// Answers a call, or returns nothing and leaves it to the operator.
using AttentionHandler = std::function<std::optional<at::Tensor>(const AttentionCall&)>;

/// While it lives, calls with DTensors in this thread go to `handler` first. Scopes nest: the innermost alone is asked.
class AttentionScope {
 public:
  explicit AttentionScope(AttentionHandler handler);
  ~AttentionScope();
  AttentionScope(const AttentionScope&) = delete;
  AttentionScope& operator=(const AttentionScope&) = delete;

  /// What the innermost scope of this thread answers.
  static std::optional<at::Tensor> answer(const AttentionCall& call);

 private:
  AttentionHandler handler_;
  AttentionScope* outer_;
};

}  // namespace sherd::detail
