#include "sharded/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "comm/errors.h"
#include "sharded/as_dtensor.h"
#include "sharded/moves.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using sharded::ShardedTensor;
using torch::jit::Stack;

// A table as a DTensor, and which part of it is here.
struct Table {
  Tensor weight;  // a DTensor of [rows, width]
  DeviceMesh mesh;
  Group group;
};

// Checked on all ranks before anything moves; `mine` is how many ids, bags, ... this rank has. Returns those of every
// rank, in the order of the mesh.
std::vector<Dims> counts_of_all(const char* operation, const Table& table, const std::function<Dims()>& mine) {
  std::string text;
  try {
    text = "=" + to_string(mine());
  } catch (...) {
    text = "x" + message_of_current_exception();
  }
  const std::vector<std::string> all = all_gather_text(table.group, text);
  std::vector<Dims> counts(all.size());
  ErrorText error(operation, "some ranks failed");
  bool failed = false;
  const std::vector<int64_t> order = table.mesh.mesh().ranks();
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t rank = table.group.ranks()[i];
    if (all[i][0] == 'x') {
      failed = true;
      error.fact(fmt::format("rank {}", rank), all[i].substr(1));
      continue;
    }
    counts[static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin())] =
        parse_dims(std::string_view(all[i]).substr(1));
  }
  if (failed) throw_value_error(error.help("mend what these ranks say; no rank went on"));
  return counts;
}

// Rows in the order of the mesh's ranks, each having its own number of them.
Placements rows_by_rank(const Mesh& mesh, const std::vector<Dims>& counts, size_t which) {
  Dims ends = {0};
  for (const Dims& count : counts) ends.push_back(ends.back() + count[which]);
  Placements placements;
  int64_t pieces = 1;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    pieces *= mesh.size(axis);
    Dims cuts;
    for (int64_t i = 0; i <= pieces; ++i) {
      cuts.push_back(ends[static_cast<size_t>(i * (static_cast<int64_t>(counts.size()) / pieces))]);
    }
    placements.push_back(Ragged(0, std::move(cuts)));
  }
  return placements;
}

int64_t total(const std::vector<Dims>& counts, size_t which) {
  int64_t sum = 0;
  for (const Dims& count : counts) sum += count[which];
  return sum;
}

// What every rank has of a list, one after the other, on every rank. Differentiable.
Tensor gathered(const Tensor& mine, const Table& table, const std::vector<Dims>& counts, size_t which) {
  FromLocalOptions options;
  options.shape = Dims{total(counts, which)};
  return full_tensor(
      from_local(mine.contiguous(), table.mesh, rows_by_rank(table.mesh.mesh(), counts, which), options));
}

// This rank's rows of a result that all ranks made for all.
Tensor own_rows(const Tensor& result, const Table& table, const std::vector<Dims>& counts, size_t which) {
  return to_local(redistribute(result, rows_by_rank(table.mesh.mesh(), counts, which)));
}

Table table_of(const char* operation, const Tensor& weight) {
  const ShardedLayout& layout = require_group(operation, weight);
  if (weight.dim() != 2 || !layout.holders.group()) {
    throw_value_error(
        ErrorText(operation, weight.dim() != 2 ? "the weight is not a table" : "this rank has no part of it")
            .fact("weight", to_string(weight.sizes().vec()))
            .help("a ShardedTensor of [rows, width], on a rank of its group"));
  }
  const Group group = *layout.holders.group();
  ShardedTensor cells(weight);
  if (!mesh_form(layout)) {
    std::vector<sharded::RemoteDevice> placements;
    for (const int64_t rank : layout.holders.ranks()) placements.emplace_back(rank, c10::Device(layout.device.type()));
    cells = cells.reshard(sharded::ChunkShardingSpec(0, std::move(placements)));
  }
  const Tensor dtensor = sharded::to_dtensor(cells);
  return {dtensor, mesh_of(dtensor), group};
}

void check_ids(const char* operation, const Tensor& ids, int64_t rows) {
  if (ids.numel() == 0) return;
  const int64_t least = ids.min().item<int64_t>();
  const int64_t most = ids.max().item<int64_t>();
  if (least >= 0 && most < rows) return;
  throw_value_error(ErrorText(operation, "an id is not a row of the table")
                        .fact("ids", fmt::format("{} to {}", least, most))
                        .fact("rows", std::to_string(rows))
                        .help(fmt::format("ids between 0 and {}", rows - 1)));
}

[[noreturn]] void refuse_sparse(const char* operation) {
  throw_error(ErrorText(operation, "gradients of a sharded table are not sparse")
                  .fact("sparse", "true")
                  .help("sparse = false"));
}

Tensor look_up(const Tensor& weight, const Tensor& ids, int64_t padding, bool scale, bool sparse) {
  constexpr const char* kOperation = "embedding";
  const Table table = table_of(kOperation, weight);
  const auto counts = counts_of_all(kOperation, table, [&] {
    if (sparse) refuse_sparse(kOperation);
    check_ids(kOperation, ids, weight.size(0));
    return Dims{ids.numel()};
  });
  const Tensor all = gathered(ids.reshape({-1}), table, counts, 0);
  const Tensor rows = own_rows(at::embedding(table.weight, all, padding, scale, false), table, counts, 0);
  Dims shape = ids.sizes().vec();
  shape.push_back(weight.size(1));
  return rows.view(shape);
}

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

struct Bags {
  Tensor ids;      // one after the other
  Tensor offsets;  // where each bag begins
  Tensor weights;  // per id, or undefined
};

// The bags of all ranks.
Bags all_bags(const Bags& mine, const Table& table, const std::vector<Dims>& counts) {
  Bags all;
  all.ids = gathered(mine.ids, table, counts, 0);
  const std::vector<int64_t> order = table.mesh.mesh().ranks();
  const int64_t me = table.mesh.world().rank();
  int64_t before = 0;  // ids of the ranks before this one
  for (size_t i = 0; order[i] != me; ++i) before += counts[i][0];
  all.offsets = gathered(mine.offsets + before, table, counts, 1);
  if (mine.weights.defined()) all.weights = gathered(mine.weights, table, counts, 0);
  return all;
}

// The bags as far as this rank's rows go: [bags, width here], and how many ids of each bag count.
Tensor bags_here(const Tensor& weight, const Layout& layout, const Dims& coordinate, const Bags& bags, int64_t mode,
                 int64_t padding, Tensor& counted) {
  const int64_t first = local_shape(layout, coordinate)[0] == 0 ? 0 : local_offset(layout, coordinate)[0];
  const int64_t rows = local_shape(layout, coordinate)[0];
  const Tensor counts =
      padding >= 0 ? bags.ids.ne(padding) : at::ones({bags.ids.size(0)}, bags.ids.options()).to(at::kBool);
  const Tensor own = bags.ids.ge(first).logical_and(bags.ids.lt(first + rows)).logical_and(counts);
  // How many that count stand before each place.
  const auto before = [&](const Tensor& flags) {
    return at::cat({at::zeros({1}, bags.ids.options()), flags.to(bags.ids.scalar_type()).cumsum(0)});
  };
  const auto per_bag = [&](const Tensor& flags) {
    const Tensor sums = before(flags);
    const Tensor ends = at::cat({bags.offsets.slice(0, 1), at::full({1}, bags.ids.size(0), bags.offsets.options())});
    return sums.index_select(0, ends) - sums.index_select(0, bags.offsets);
  };
  counted = per_bag(counts);
  const Tensor ids = bags.ids.masked_select(own) - first;
  const Tensor offsets = before(own).index_select(0, bags.offsets);
  std::optional<Tensor> weights;
  if (bags.weights.defined()) weights = bags.weights.masked_select(own);
  // A table without rows has no gradient of its own to give; it gets one row that nobody asks for.
  const Tensor table = rows > 0 ? weight : at::cat({weight, at::zeros({1, weight.size(1)}, weight.options())});
  Tensor result =
      std::get<0>(at::embedding_bag(table, ids, offsets, false, mode == kMax ? kMax : kSum, false, weights, false));
  if (mode != kMax) return result;
  const Tensor nothing = per_bag(own).eq(0).unsqueeze(1);
  return result.masked_fill(nothing, -std::numeric_limits<double>::infinity());
}

// Of the largest numbers of all ranks, each stands on the first rank that has it; the others have 0.
Tensor only_largest(const Tensor& here, const Tensor& counted, const DeviceMesh& mesh, int64_t axis) {
  const c10::NoGradGuard no_grad;
  const Group group = mesh.group(axis);
  const Tensor most = here.detach().clone();
  all_reduce(group, most, ReduceOp::max).wait();
  const Tensor first = at::full(most.sizes(), int64_t{group.size()}, most.options().dtype(at::kLong));
  first.masked_fill_(here.detach().eq(most), group.rank());
  all_reduce(group, first, ReduceOp::min).wait();
  return first.eq(group.rank()).logical_and(counted.gt(0).unsqueeze(1));
}

Tensor look_up_bags(const Tensor& weight, const Bags& mine, int64_t mode, int64_t padding,
                    const std::function<void()>& check) {
  constexpr const char* kOperation = "embedding_bag";
  const Table table = table_of(kOperation, weight);
  const auto counts = counts_of_all(kOperation, table, [&] {
    check();
    check_ids(kOperation, mine.ids, weight.size(0));
    return Dims{mine.ids.numel(), mine.offsets.numel()};
  });
  const Bags bags = all_bags(mine, table, counts);
  const Layout layout = layout_of(table.weight);
  Tensor counted;
  Tensor here = bags_here(to_local(table.weight), layout, *table.mesh.coordinate(), bags, mode, padding, counted);
  Placements placements = layout.placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (sharded_dim(placements[axis]) != 0) continue;
    placements[axis] = Partial();
    if (mode == kMax) {
      const Tensor wins = only_largest(here, counted, table.mesh, static_cast<int64_t>(axis));
      here = at::where(wins, here, at::zeros({}, here.options()));
    }
  }
  if (mode == kMax) here = here.masked_fill(counted.eq(0).unsqueeze(1), 0);  // as torch: a bag without ids
  if (mode == kMean) here = here / counted.clamp_min(1).unsqueeze(1).to(here.scalar_type());
  FromLocalOptions options;
  options.shape = Dims{bags.offsets.size(0), weight.size(1)};
  return own_rows(from_local(here, table.mesh, std::move(placements), options), table, counts, 1);
}

// embedding_bag's arguments in their one form: ids in a row, and where bags begin.
Bags bags_of(const Tensor& ids, const Tensor& offsets, const std::optional<Tensor>& weights, bool last_offset) {
  Bags bags;
  bags.ids = ids.reshape({-1});
  bags.offsets = offsets;
  if (last_offset && offsets.size(0) > 0) bags.offsets = offsets.slice(0, 0, offsets.size(0) - 1);
  if (weights && weights->defined()) bags.weights = weights->reshape({-1});
  return bags;
}

void check_bags(const Tensor& ids, const Tensor& offsets, const std::optional<Tensor>& weights, int64_t mode,
                bool last_offset) {
  const auto require = [&](bool fine, const char* why, const std::string& given, const char* help) {
    if (!fine) throw_value_error(ErrorText("embedding_bag", why).fact("given", given).help(help));
  };
  require(ids.dim() == 1, "ids must stand in a row", to_string(ids.sizes().vec()), "a 1-D tensor, and offsets");
  require(offsets.dim() == 1, "offsets must stand in a row", to_string(offsets.sizes().vec()), "a 1-D tensor");
  require(mode >= kSum && mode <= kMax, "unknown mode", std::to_string(mode), "0 sum, 1 mean, 2 max");
  if (offsets.numel() > 0) {
    const int64_t first = offsets[0].item<int64_t>();
    const int64_t last = offsets[-1].item<int64_t>();
    require(first == 0, "the first offset is not 0", std::to_string(first), "offsets that begin with 0");
    require(last <= ids.size(0), "an offset is beyond the ids", std::to_string(last), "offsets up to ids.size(0)");
    require(!last_offset || last == ids.size(0), "the last offset is not the number of ids", std::to_string(last),
            "include_last_offset with ids.size(0) as the last one");
    require(offsets.slice(0, 1).ge(offsets.slice(0, 0, -1)).all().item<bool>(), "offsets do not ascend",
            to_string(offsets.sizes().vec()), "offsets in ascending order");
  }
  if (!weights || !weights->defined()) return;
  require(weights->sizes() == ids.sizes(), "one weight per id is needed", to_string(weights->sizes().vec()),
          "per_sample_weights of the size of the ids");
  require(mode == kSum, "only sums have weights", std::to_string(mode), "mode 0");
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse), above autograd.
void embedding(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  if (!embedding_below_autograd(op, *stack)) op.callBoxedForDispatchKey(c10::DispatchKey::Autograd, *stack);
}

// embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample_weights, include_last_offset, padding_idx):
// the bags alone count, what else it returns serves its own backward.
void embedding_bag(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Tensor weight = argument(*stack, op, 0).toTensor();
  if (sharded_layout(weight) == nullptr) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  const Tensor ids = argument(*stack, op, 1).toTensor();
  const Tensor offsets = argument(*stack, op, 2).toTensor();
  const bool scale = argument(*stack, op, 3).toBool();
  const int64_t mode = argument(*stack, op, 4).toInt();
  const bool sparse = argument(*stack, op, 5).toBool();
  const auto weights = optional_tensor(argument(*stack, op, 6));
  const bool last_offset = argument(*stack, op, 7).toBool();
  int64_t padding = -1;
  if (op.schema().arguments().size() > 8) {
    const c10::IValue& given = argument(*stack, op, 8);
    if (given.isInt() && given.toInt() != -1)
      padding = given.toInt() < 0 ? given.toInt() + weight.size(0) : given.toInt();
  }
  const Tensor result = look_up_bags(weight, bags_of(ids, offsets, weights, last_offset), mode, padding, [&] {
    if (sparse) refuse_sparse("embedding_bag");
    if (scale) {
      throw_error(ErrorText("embedding_bag", "gradients of a sharded table are not scaled by frequency")
                      .fact("scale_grad_by_freq", "true")
                      .help("scale_grad_by_freq = false"));
    }
    check_bags(ids, offsets, weights, mode, last_offset);
  });
  torch::jit::drop(*stack, op.schema().arguments().size());
  const Tensor none = at::zeros({0}, ids.options());
  for (const Tensor& value : {result, none, none, none}) stack->emplace_back(value);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, library) {
  library.impl("embedding", torch::CppFunction::makeFromBoxedFunction<&embedding>());
  library.impl("embedding_bag", torch::CppFunction::makeFromBoxedFunction<&embedding_bag>());
  library.impl("embedding_bag.padding_idx", torch::CppFunction::makeFromBoxedFunction<&embedding_bag>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse2, library) {  // where autograd is off altogether
  library.impl("embedding_bag", torch::CppFunction::makeFromBoxedFunction<&embedding_bag>());
  library.impl("embedding_bag.padding_idx", torch::CppFunction::makeFromBoxedFunction<&embedding_bag>());
}

}  // namespace

bool embedding_below_autograd(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor weight = argument(stack, op, 0).toTensor();
  if (sharded_layout(weight) == nullptr) return false;
  answer(op, stack,
         look_up(weight, argument(stack, op, 1).toTensor(), argument(stack, op, 2).toInt(),
                 argument(stack, op, 3).toBool(), argument(stack, op, 4).toBool()));
  return true;
}

bool embedding_renorm(const c10::OperatorHandle& op, Stack& stack) {
  constexpr const char* kOperation = "embedding_renorm_";
  Tensor weight = argument(stack, op, 0).toTensor();
  if (sharded_layout(weight) == nullptr) return false;
  const Tensor ids = argument(stack, op, 1).toTensor();
  const double max_norm = argument(stack, op, 2).toDouble();
  const double p = argument(stack, op, 3).toDouble();
  const Table table = table_of(kOperation, weight);
  const auto counts = counts_of_all(kOperation, table, [&] {
    if (!(max_norm > 0)) {
      throw_value_error(ErrorText(kOperation, "max_norm is not above 0")
                            .fact("max_norm", fmt::format("{}", max_norm))
                            .help("max_norm > 0"));
    }
    check_ids(kOperation, ids, weight.size(0));
    return Dims{ids.numel()};
  });
  const Tensor asked = std::get<0>(at::_unique(gathered(ids.reshape({-1}), table, counts, 0)));
  const Tensor norms = full_tensor(table.weight.index_select(0, asked).norm(p, {1}));
  constexpr double kLeast = 1e-7;  // as torch
  const Tensor scale = at::where(norms.gt(max_norm), max_norm / (norms + kLeast), at::ones({}, norms.options()));
  const Tensor all = at::ones({weight.size(0), 1}, norms.options()).index_copy(0, asked, scale.unsqueeze(1));
  weight.mul_(all);
  answer(op, stack, weight);
  return true;
}

}  // namespace sherd::detail
