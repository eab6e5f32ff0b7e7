#include "tensor/blocks.h"

#include <algorithm>
#include <numeric>

#include "comm/huge_pages.h"
#include "comm/run_moves.h"
#include "sherd/collectives.h"
#include "tensor/row_places.h"
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
    // Blocks with fewer rows than there are rounds take different ones: both sides of a message count them alike.
    int64_t turn = index;
    for (Block& block : member) {
      block.rows = plan::share_of(std::move(block.rows), count, turn++ % count);
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
std::optional<Tensor> whole_part(const std::vector<HeldPart>& parts, const Round& round, c10::ScalarType travels) {
  if (parts.size() != 1 || round.total() != parts[0].tensor.numel()) return std::nullopt;
  if (parts[0].tensor.scalar_type() != travels) return std::nullopt;
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

const Tensor& like(const BlockSwap& swap) { return (swap.from.empty() ? swap.to : swap.from).front().tensor; }

c10::ScalarType travels(const BlockSwap& swap) { return swap.travels.value_or(like(swap).scalar_type()); }

bool is_converted(const BlockSwap& swap) {
  const c10::ScalarType type = travels(swap);
  const auto differs = [&](const HeldPart& part) { return part.tensor.scalar_type() != type; };
  return std::any_of(swap.from.begin(), swap.from.end(), differs) ||
         std::any_of(swap.to.begin(), swap.to.end(), differs);
}

void run_round(const BlockSwap& swap, const Round& out, const Round& in) {
  const at::TensorOptions options = like(swap).options().dtype(travels(swap));
  Tensor sent;
  if (auto whole = whole_part(swap.from, out, travels(swap))) {
    sent = *whole;
  } else {
    sent = empty_large({out.total()}, options);
    walk(sent, out, [&](const Block& block, const Tensor& place) {
      const HeldPart& part = swap.from[block.part];
      get(part.tensor, part.rows, block.rows, place);
    });
  }
  const auto direct = whole_part(swap.to, in, travels(swap));
  const Tensor received = direct ? *direct : empty_large({in.total()}, options);
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

int64_t elements(const BlockLists& lists) {
  int64_t count = 0;
  for (const auto& member : lists) {
    for (const Block& block : member) count += plan::numel(block.rows);
  }
  return count;
}

// Where the blocks of each member lie in the parts.
std::vector<ByteRuns> runs_of(const std::vector<HeldPart>& parts, const BlockLists& blocks,
                              void (ByteRuns::*add)(const Tensor&, const std::vector<RunList>&)) {
  std::vector<ByteRuns> runs(blocks.size());
  for (size_t member = 0; member < blocks.size(); ++member) {
    for (const Block& block : blocks[member]) {
      const HeldPart& part = parts[block.part];
      if (plan::numel(block.rows) > 0) (runs[member].*add)(part.tensor, places_of(part.rows, block.rows));
    }
  }
  return runs;
}

// From part to part, with nothing beside them. False where the transport cannot.
bool run_in_place(const BlockSwap& swap) {
  const Tensor& any = like(swap);
  if (swap.reduce || is_converted(swap) ||
      !moves_runs(swap.group, any.device().type(), swap.gather ? "all_gather" : "all_to_all")) {
    return false;
  }
  // What is this small is packed sooner than all its runs are listed; who packs is nobody else's affair.
  constexpr int64_t kSmall = int64_t{64} * 1024;
  const auto bytes = (elements(swap.gives) + elements(swap.takes)) * static_cast<int64_t>(any.element_size());
  if (bytes <= kSmall) {
    run_round(swap, round_of(swap.gives, 1, 0), round_of(swap.takes, 1, 0));
    return true;
  }
  const RunMove move{.gives = runs_of(swap.from, swap.gives, &ByteRuns::add_to_read),
                     .takes = runs_of(swap.to, swap.takes, &ByteRuns::add_to_write),
                     .like = any};
  if (swap.gather) {
    all_gather_runs(swap.group, move);
  } else {
    all_to_all_runs(swap.group, move);
  }
  return true;
}

}  // namespace

void run_swap(const BlockSwap& swap) {
  if (run_in_place(swap)) return;
  for (int64_t round = 0; round < swap.rounds; ++round) {
    run_round(swap, round_of(swap.gives, swap.rounds, round), round_of(swap.takes, swap.rounds, round));
  }
}

int64_t packed_size(const BlockSwap& swap) { return static_cast<int64_t>(c10::elementSize(travels(swap))); }

int64_t rounds_for(int64_t bytes, int64_t staging_bytes) {
  constexpr int64_t kMost = 65'536;
  return std::clamp<int64_t>((bytes + staging_bytes - 1) / std::max<int64_t>(1, staging_bytes), 1, kMost);
}

}  // namespace sherd::detail
