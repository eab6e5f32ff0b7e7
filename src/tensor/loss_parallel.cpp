#include "sherd/loss_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "comm/errors.h"
#include "tensor/loss_parallel_check.h"

namespace sherd {
namespace {

thread_local bool in_scope = false;

// Operators that a loss consists of, and which argument has the classes in dim 1 (the last of a vector).
struct LossOperator {
  std::string_view name;
  size_t logits;
};
constexpr LossOperator kLosses[] = {
    {"aten::nll_loss_forward", 0},
    {"aten::nll_loss2d_forward", 0},
    {"aten::nll_loss_backward", 1},
    {"aten::nll_loss2d_backward", 1},
    {"aten::multi_margin_loss", 0},
    {"aten::multi_margin_loss_backward", 1},
    {"aten::multilabel_margin_loss_forward", 0},
    {"aten::multilabel_margin_loss_backward", 1},
};

}  // namespace

LossParallel::LossParallel() : outer_(std::exchange(in_scope, true)) {}
LossParallel::~LossParallel() { in_scope = outer_; }

void detail::check_loss_parallel(const OpInfo& info, const OpPlan& plan) {
  if (!in_scope || !plan.any_moves || plan.bytes == 0) return;
  const auto* loss =
      std::find_if(std::begin(kLosses), std::end(kLosses), [&](const auto& row) { return row.name == info.name; });
  if (loss == std::end(kLosses) || loss->logits >= plan.inputs.size()) return;
  const InputPlan& logits = plan.inputs[loss->logits];
  if (!logits.moves) return;
  const int64_t dim = logits.shape.size() == 1 ? 0 : 1;
  const auto cuts = [&](const Placement& p) { return sharded_dim(p) == dim; };
  if (std::none_of(logits.from.begin(), logits.from.end(), cuts)) return;
  if (std::any_of(logits.to.begin(), logits.to.end(), cuts)) return;
  Placements batch = logits.from;
  for (Placement& p : batch) {
    if (cuts(p)) p = Shard(0);
  }
  const std::string instead = dim == 0 ? to_code(logits.to) : to_code(batch);
  throw_value_error(
      ErrorText(info.short_name(), "would gather the classes of its logits in a LossParallel scope")
          .fact("logits", fmt::format("{} -> {}: {}", to_string(logits.from), to_string(logits.to),
                                      to_string(logits.move, plan.mesh->mesh())))
          .help(fmt::format("logits = sherd::redistribute(logits, {}), or torch::nn::functional::cross_entropy",
                            instead)));
}

}  // namespace sherd
