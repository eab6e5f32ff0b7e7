#include "sherd/expert_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/errors.h"
#include "comm/observer.h"
#include "parallel/axis_of.h"
#include "parallel/route_rows.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/layout.h"

namespace sherd {
namespace {

using at::Tensor;
using Counts = std::vector<int64_t>;

constexpr const char* kOperation = "expert_parallel";

// What a rank works with, all of it local.
struct Local {
  Tensor tokens, chosen, weights;
  std::vector<Tensor> parameters = {};
  Group group;                           // along the experts' axis
  std::vector<Group> token_groups = {};  // along the axes that cut the tokens, leftmost first
};

void refuse(const char* problem, const char* what, const Tensor& tensor, const char* help) {
  detail::throw_value_error(ErrorText(kOperation, problem).fact(what, to_string(tensor)).help(help));
}

void check_shapes(const Tensor& tokens, const Tensor& chosen, const Tensor& weights, const Experts& experts,
                  const ExpertParallelOptions& options) {
  if (tokens.dim() != 2) refuse("tokens must be a matrix", "tokens", tokens, "tokens.flatten(0, -2)");
  const bool fits = chosen.dim() == 2 && chosen.size(0) == tokens.size(0) && weights.sizes() == chosen.sizes();
  if (!fits || chosen.scalar_type() != at::kLong) {
    detail::throw_value_error(ErrorText(kOperation, "each token needs the numbers of its experts and a weight for each")
                                  .fact("tokens", to_string(tokens))
                                  .fact("chosen", to_string(chosen))
                                  .fact("weights", to_string(weights))
                                  .help("auto [weights, chosen] = scores.softmax(-1).topk(2)"));
  }
  if (experts.count < 1 || !experts.run) {
    detail::throw_value_error(ErrorText(kOperation, "there are no experts")
                                  .fact("count", std::to_string(experts.count))
                                  .help("Experts{.count = 8, .run = function}"));
  }
  if (options.capacity && *options.capacity < 0) {
    detail::throw_value_error(ErrorText(kOperation, "a capacity counts tokens")
                                  .fact("capacity", std::to_string(*options.capacity))
                                  .help("ExpertParallelOptions{.capacity = 2 * tokens * choices / experts}"));
  }
}

// How tokens are brought: cut by rows on the experts' axis and on those that cut them already.
Placements rows_cut(const Tensor& tokens, int64_t axis) {
  Placements placements = placements_of(tokens);
  for (size_t a = 0; a < placements.size(); ++a) {
    placements[a] = static_cast<int64_t>(a) == axis || sharded_dim(placements[a]) == 0 ? Placement(Shard(0))
                                                                                       : Placement(Replicate());
  }
  return placements;
}

Tensor brought(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  if (is_dtensor(tensor)) return redistribute(tensor, placements);
  const Placements whole(placements.size(), Replicate());
  return redistribute(from_local(tensor, mesh, whole, {.shape = tensor.sizes().vec()}), placements);
}

// A parameter's rows for this rank's experts. Ranks that have tokens of their own have their own parts of its gradient.
Tensor local_parameter(const Tensor& parameter, const DeviceMesh& mesh, const Placements& tokens, int64_t axis,
                       int64_t count) {
  if (!is_dtensor(parameter) || mesh_of(parameter) != mesh || parameter.dim() < 1 || parameter.size(0) != count) {
    detail::throw_value_error(
        ErrorText(kOperation, "a parameter must have one row for each expert, on the tokens' mesh")
            .fact("parameter", to_string(parameter))
            .fact("mesh", to_string(mesh))
            .fact("experts", std::to_string(count))
            .help("distribute_parameter_(parameter, mesh, placements) with Shard(0) on the axis"));
  }
  Placements cut(tokens.size(), Replicate());
  Placements grad = cut;
  for (size_t a = 0; a < cut.size(); ++a) {
    if (static_cast<int64_t>(a) == axis) {
      cut[a] = grad[a] = Shard(0);
    } else if (is_shard(tokens[a])) {
      grad[a] = Partial();
    }
  }
  return to_local(redistribute(parameter, cut), grad);
}

// Who has how many tokens for whom, known to all ranks that share the tokens.
struct Traffic {
  std::vector<Counts> kept;  // by place along the experts' axis: of each expert, what that rank sends to it
  Counts before;             // of each expert: the choices of the ranks that come before this one
};

Counts to_counts(const Tensor& tensor) {
  const Tensor host = tensor.cpu().contiguous();
  return Counts(host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel());
}

// One row for each rank of the group.
Tensor gathered(const Group& group, const Tensor& mine) {
  const Tensor out = at::empty({group.size() * mine.numel()}, mine.options());
  const detail::CauseScope cause("expert parallel");
  all_gather(group, out, mine.contiguous()).wait();
  return out;
}

}  // namespace

Tensor ExpertBatch::tokens_of(int64_t expert) const {
  const auto e = static_cast<size_t>(expert);
  return tokens.narrow(0, offsets.at(e), offsets.at(e + 1) - offsets.at(e));
}

namespace {

// Numbers that are no expert's are told to all ranks with the counts: column `count` says how many, the next one such
// a number.
Tensor counts_of(const Tensor& numbers, int64_t count) {
  const Tensor wrong = numbers.lt(0).logical_or_(numbers.ge(count));
  const Tensor bad = numbers.masked_select(wrong);
  const Tensor good = bad.numel() == 0 ? numbers : numbers.masked_select(wrong.logical_not());
  const Tensor example = bad.numel() == 0 ? at::zeros({1}, numbers.options()) : bad.narrow(0, 0, 1);
  return at::cat({at::bincount(good, {}, count), wrong.sum().view({1}), example});
}

void check_numbers(const Tensor& rows, const Group& group, int64_t count) {
  const Tensor host = rows.cpu();
  for (int64_t r = 0; r < host.size(0); ++r) {
    if (host[r][count].item<int64_t>() == 0) continue;
    detail::throw_value_error(ErrorText(kOperation, "a token chose an expert that does not exist")
                                  .fact("chosen", std::to_string(host[r][count + 1].item<int64_t>()))
                                  .fact("rank", std::to_string(group.ranks()[static_cast<size_t>(r)]))
                                  .fact("experts", std::to_string(count))
                                  .help(fmt::format("numbers from 0 to {}", count - 1)));
  }
}

Traffic exchange_counts(const Local& local, const Tensor& numbers, int64_t count, std::optional<int64_t> capacity) {
  const Tensor mine = counts_of(numbers, count);
  const Tensor along = gathered(local.group, mine).view({local.group.size(), -1});
  check_numbers(along, local.group, count);
  const Tensor counts = along.narrow(1, 0, count).contiguous();
  Traffic traffic;
  traffic.before.assign(static_cast<size_t>(count), 0);
  for (int r = 0; r < local.group.size(); ++r) traffic.kept.push_back(to_counts(counts[r]));
  if (!capacity) return traffic;

  // The order of the tokens over all ranks is that of the axes that cut them, leftmost outermost.
  Tensor all = mine.narrow(0, 0, count);
  int64_t place = 0;
  int64_t stride = 1;
  for (size_t i = local.token_groups.size(); i-- > 0;) {
    const Group& group = local.token_groups[i];
    place += group.rank() * stride;
    stride *= group.size();
    all = gathered(group, all.reshape(-1));
  }
  const Tensor sums = all.view({-1, count}).narrow(0, 0, place).sum(0);
  traffic.before = to_counts(sums);
  // What each rank of the axis keeps of its own: they exchange it, since each has other ranks before it.
  Counts kept(static_cast<size_t>(count));
  const Counts& own = traffic.kept[static_cast<size_t>(local.group.rank())];
  for (size_t e = 0; e < kept.size(); ++e) {
    kept[e] = std::clamp(*capacity - traffic.before[e], int64_t{0}, own[e]);
  }
  const Tensor told = gathered(local.group, at::tensor(kept, at::kLong).to(numbers.device()));
  for (int r = 0; r < local.group.size(); ++r) {
    traffic.kept[static_cast<size_t>(r)] = to_counts(told.view({-1, count})[r]);
  }
  return traffic;
}

// The first `kept` of each expert's choices, which stand side by side in `order`.
Tensor first_of_each(const Tensor& order, const Tensor& sorted, const Counts& kept) {
  const auto count = static_cast<int64_t>(kept.size());
  const Tensor totals = at::bincount(sorted, {}, count);
  const Tensor begins = totals.cumsum(0) - totals;
  const Tensor place = at::arange(order.numel(), order.options()) - begins.index_select(0, sorted);
  const Tensor limit = at::tensor(kept, at::kLong).to(order.device()).index_select(0, sorted);
  return order.masked_select(place.lt(limit));
}

// Rows that came by rank, then by expert, in the order of experts, then ranks; and where each expert's rows begin.
struct Regrouping {
  Tensor by_expert;  // rows of what came
  Tensor by_rank;    // its inverse
  std::vector<int64_t> offsets;
};

Regrouping regroup(const Traffic& traffic, const Run& experts, c10::Device device) {
  const auto begin = static_cast<size_t>(experts.offset);
  const auto size = static_cast<size_t>(experts.size);
  Regrouping result;
  result.offsets.assign(1, 0);
  std::vector<std::vector<int64_t>> at_row(traffic.kept.size());  // where rows of (rank, expert) came
  int64_t row = 0;
  for (size_t r = 0; r < traffic.kept.size(); ++r) {
    for (size_t e = 0; e < size; ++e) {
      at_row[r].push_back(row);
      row += traffic.kept[r][begin + e];
    }
  }
  const Tensor order = at::empty({row}, at::TensorOptions(at::kLong));
  const Tensor inverse = at::empty({row}, at::TensorOptions(at::kLong));
  auto* const to = order.mutable_data_ptr<int64_t>();
  auto* const back = inverse.mutable_data_ptr<int64_t>();
  int64_t next = 0;
  for (size_t e = 0; e < size; ++e) {
    for (size_t r = 0; r < traffic.kept.size(); ++r) {
      for (int64_t i = 0; i < traffic.kept[r][begin + e]; ++i) {
        to[next] = at_row[r][e] + i;
        back[at_row[r][e] + i] = next++;
      }
    }
    result.offsets.push_back(next);
  }
  result.by_expert = order.to(device);
  result.by_rank = inverse.to(device);
  return result;
}

Counts per_rank(const Counts& per_expert, int ranks) {
  Counts result;
  for (int r = 0; r < ranks; ++r) {
    const Run run = chunk(static_cast<int64_t>(per_expert.size()), ranks, r);
    const auto begin = per_expert.begin() + run.offset;
    result.push_back(std::accumulate(begin, begin + run.size, int64_t{0}));
  }
  return result;
}

void check_output(const Tensor& output, const Tensor& tokens) {
  if (output.defined() && output.dim() == 2 && output.size(0) == tokens.size(0) && !is_dtensor(output)) return;
  detail::throw_value_error(ErrorText(kOperation, "the experts must return one row for each token")
                                .fact("tokens", to_string(tokens))
                                .fact("returned", output.defined() ? to_string(output) : "nothing")
                                .help("Experts::run works on local tensors: [rows, width] -> [rows, width]"));
}

Tensor route(const Local& local, const Experts& experts, const ExpertParallelOptions& options) {
  const int64_t choices = local.chosen.size(1);
  const Tensor numbers = local.chosen.reshape(-1);
  const Traffic traffic = exchange_counts(local, numbers, experts.count, options.capacity);
  const auto me = static_cast<size_t>(local.group.rank());
  const Run own = chunk(experts.count, local.group.size(), local.group.rank());

  auto [sorted, order] = numbers.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  if (options.capacity) order = first_of_each(order, sorted, traffic.kept[me]);
  const Counts give = per_rank(traffic.kept[me], local.group.size());
  Counts take;
  for (const Counts& kept : traffic.kept) {
    take.push_back(std::accumulate(kept.begin() + own.offset, kept.begin() + own.offset + own.size, int64_t{0}));
  }

  const Tensor leaving = local.tokens.index_select(0, order.div(choices, "floor"));
  const Tensor arrived = detail::route_rows(leaving, local.group, give, take);
  const Regrouping groups = regroup(traffic, own, local.tokens.device());
  const ExpertBatch batch{arrived.index_select(0, groups.by_expert), groups.offsets, own.offset, local.parameters};
  Tensor output = experts.run(batch);
  check_output(output, batch.tokens);
  std::vector<Tensor> inputs = local.parameters;
  inputs.push_back(batch.tokens);
  output = detail::tied_to(output, inputs).index_select(0, groups.by_rank);
  const Tensor returned = detail::route_rows(output, local.group, take, give);

  const Tensor each = at::zeros({numbers.numel(), returned.size(1)}, returned.options()).index_copy(0, order, returned);
  const Tensor weighted = each.view({local.tokens.size(0), choices, each.size(1)}) * local.weights.unsqueeze(-1);
  return weighted.sum(1);
}

Tensor route_dtensors(const Tensor& tokens, const Tensor& chosen, const Tensor& weights, const DeviceMesh& axis,
                      const Experts& experts, const ExpertParallelOptions& options) {
  const DeviceMesh mesh = mesh_of(tokens);
  const auto found = detail::axis_of(mesh, axis);
  if (!found) {
    detail::throw_value_error(ErrorText(kOperation, "the tokens' mesh does not have the experts' axis")
                                  .fact("tokens", to_string(tokens))
                                  .fact("axis", to_string(axis))
                                  .help("distribute the tokens on the mesh that the axis was sliced from"));
  }
  const Placements placements = rows_cut(tokens, *found);
  const Tensor cut = redistribute(tokens, placements);
  Local local{.tokens = to_local(cut),
              .chosen = to_local(brought(chosen, mesh, placements)),
              .weights = to_local(brought(weights, mesh, placements)),
              .group = mesh.group(*found)};
  for (int64_t a = 0; a < mesh.ndim(); ++a) {
    if (is_shard(placements[static_cast<size_t>(a)])) local.token_groups.push_back(mesh.group(a));
  }
  for (const Tensor& parameter : experts.parameters) {
    local.parameters.push_back(local_parameter(parameter, mesh, placements, *found, experts.count));
  }
  const Tensor result = route(local, experts, options);
  return from_local(result, mesh, placements, {.shape = Dims{tokens.size(0), result.size(1)}});
}

Tensor route_local(const Tensor& tokens, const Tensor& chosen, const Tensor& weights, const DeviceMesh& axis,
                   const Experts& experts, const ExpertParallelOptions& options) {
  for (const Tensor* tensor : {&chosen, &weights}) {
    if (is_dtensor(*tensor)) refuse("tokens are plain and this is not", "tensor", *tensor, "sherd::to_local(tensor)");
  }
  Local local{.tokens = tokens, .chosen = chosen, .weights = weights, .group = axis.group(0)};
  local.token_groups = {local.group};
  for (const Tensor& parameter : experts.parameters) {
    local.parameters.push_back(local_parameter(parameter, axis, {Shard(0)}, 0, experts.count));
  }
  return route(local, experts, options);
}

}  // namespace

Tensor expert_parallel(const Tensor& tokens, const Tensor& chosen, const Tensor& weights, const DeviceMesh& axis,
                       const Experts& experts, const ExpertParallelOptions& options) {
  detail::require_one_axis(kOperation, axis);
  check_shapes(tokens, chosen, weights, experts, options);
  const auto route_them = is_dtensor(tokens) ? route_dtensors : route_local;
  return route_them(tokens, chosen, weights, axis, experts, options);
}

}  // namespace sherd
