#include "tensor/blocks.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "sherd/collectives.h"
#include "tensor/runs.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using BlockLists = std::vector<std::vector<Block>>;

// The share of every block that is exchanged in one round, and its elements per member.
struct Round {
  BlockLists blocks;
  std::vector<int64_t> numels;
  int64_t total() const { return std::accumulate(numels.begin(), numels.end(), int64_t{0}); }
};

Round round_of(BlockLists blocks, int64_t count, int64_t index) {
  Round round{std::move(blocks), {}};
  for (auto& member : round.blocks) {
    round.numels.push_back(0);
    for (Block& block : member) {
      block.rows = plan::share_of(std::move(block.rows), count, index);
      round.numels.back() += plan::numel(block.rows);
    }
  }
  return round;
}

// True where the blocks, one after the other, are the part as it lies in memory.
bool lie_in_order(const RunGrid& rows, const BlockLists& blocks) {
  size_t dim = 0;
  while (dim + 1 < rows.size() && plan::rows_of(rows[dim]) == 1) ++dim;
  if (rows.empty() || rows[dim].size() != 1) return false;
  int64_t next = rows[dim][0].offset;
  for (const auto& member : blocks) {
    for (const Block& block : member) {
      if (plan::numel(block.rows) == 0) continue;
      for (size_t d = 0; d < rows.size(); ++d) {
        if (d != dim && block.rows[d] != rows[d]) return false;
      }
      for (const Run& run : block.rows[dim]) {
        if (run.offset != next) return false;
        next = run.offset + run.size;
      }
    }
  }
  return next == rows[dim][0].offset + rows[dim][0].size;
}

// The part itself where its memory can be sent or received into as it is.
std::optional<Tensor> whole_part(const std::vector<HeldPart>& parts, const Round& round) {
  if (parts.size() != 1 || round.total() != parts[0].tensor.numel()) return std::nullopt;
  if (!lie_in_order(parts[0].rows, round.blocks)) return std::nullopt;
  return parts[0].tensor.view({-1});
}

// Calls visit(block, where it lies in a buffer).
template <typename Visit>
void walk(const Tensor& buffer, const Round& round, const Visit& visit) {
  int64_t at = 0;
  for (const auto& member : round.blocks) {
    for (const Block& block : member) {
      const int64_t count = plan::numel(block.rows);
      if (count == 0) continue;
      visit(block, buffer.narrow(0, at, count).view(plan::shape_of(block.rows)));
      at += count;
    }
  }
}

void run_round(const BlockSwap& swap, const Round& out, const Round& in, const at::TensorOptions& options) {
  Tensor sent;
  if (auto whole = whole_part(swap.from, out)) {
    sent = *whole;
  } else {
    sent = at::empty({out.total()}, options);
    walk(sent, out, [&](const Block& block, const Tensor& place) {
      const HeldPart& part = swap.from[block.part];
      get(part.tensor, part.rows, block.rows, place);
    });
  }
  const auto direct = whole_part(swap.to, in);
  const Tensor received = direct ? *direct : at::empty({in.total()}, options);
  if (swap.reduce) {
    reduce_scatter(swap.group, received, sent, *swap.reduce, out.numels).wait();
  } else if (swap.gather) {
    all_gather_uneven(swap.group, received, sent, in.numels).wait();
  } else {
    all_to_all(swap.group, received, sent, in.numels, out.numels).wait();
  }
  if (direct) return;
  walk(received, in, [&](const Block& block, const Tensor& place) {
    const HeldPart& part = swap.to[block.part];
    put(part.tensor, part.rows, block.rows, place);
  });
}

}  // namespace

void run_swap(const BlockSwap& swap) {
  const at::TensorOptions options = (swap.from.empty() ? swap.to : swap.from).front().tensor.options();
  for (int64_t round = 0; round < swap.rounds; ++round) {
    run_round(swap, round_of(swap.gives, swap.rounds, round), round_of(swap.takes, swap.rounds, round), options);
  }
}

int64_t rounds_for(int64_t bytes, int64_t staging_bytes) {
  return std::max<int64_t>(1, (bytes + staging_bytes - 1) / std::max<int64_t>(1, staging_bytes));
}

}  // namespace sherd::detail
