#pragma once
// A mixture of experts whose experts lie on different ranks: tokens travel to their experts and back.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sherd/device_mesh.h"

namespace sherd {

/// Tokens that have come to this rank, and what its experts need for them.
struct ExpertBatch {
  at::Tensor tokens;             // [rows, width], those of one expert side by side
  std::vector<int64_t> offsets;  // rows [offsets[i], offsets[i + 1]) are for the i-th expert of this rank; may be none
  int64_t first_expert = 0;      // the number of expert 0 of this rank among all
  /// This rank's part of Experts::parameters: row i of each belongs to its i-th expert.
  std::vector<at::Tensor> parameters;

  int64_t experts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  at::Tensor tokens_of(int64_t expert) const;
};

struct Experts {
  /// How many there are in all. They are dealt out as Shard(0) deals out rows: ceil(count / ranks) to each.
  int64_t count = 0;
  /// One row of output [rows, any width] for each token, in the order of the tokens. Called on every rank, also where
  /// no token came.
  std::function<at::Tensor(const ExpertBatch&)> run;
  /// DTensors [count, ...] that are cut by rows over the axis. Tensors of a rank's own need not be named here: `run`
  /// may hold them itself.
  std::vector<at::Tensor> parameters = {};
};

struct ExpertParallelOptions {
  /// The most choices that an expert takes; the first ones in the order of the tokens, over all ranks. What is dropped
  /// adds nothing to its token's output. nullopt: nothing is dropped.
  std::optional<int64_t> capacity = {};
};

/// For each token the sum, over its choices, of weight times the chosen expert's output: [tokens, width of the output].
///
///   tokens  [n, width]      DTensor; or plain: this rank's own tokens
///   chosen  [n, choices]    numbers of experts, int64
///   weights [n, choices]
///
/// `axis` is the mesh axis over which the experts lie: mesh["ep"]. DTensors are brought to Shard(0) on it and on the
/// axes that cut the tokens already; plain `chosen` and `weights` beside a DTensor count as replicated. The result is
/// cut as the tokens are then. Differentiable in tokens, weights and the experts' parameters. One small exchange of
/// counts, then two all_to_all. Throws c10::ValueError alike on every rank of the axis where a number is no expert's.
at::Tensor expert_parallel(const at::Tensor& tokens, const at::Tensor& chosen, const at::Tensor& weights,
                           const DeviceMesh& axis, const Experts& experts, const ExpertParallelOptions& options = {});

}  // namespace sherd
