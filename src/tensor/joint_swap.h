#pragma once
// What several tensors exchange at once.

#include <vector>

#include "tensor/swap_parts.h"

namespace sherd::detail {

/// Parts of several tensors, counted one after the other.
struct JointSwap {
  std::vector<HeldPart> from = {};
  std::vector<HeldPart> to = {};
  plan::Transfers transfers = {};
  int64_t elements = 0;  // as in Staging

  /// One more tensor: what it gives and takes, numbered from 0 in `more`.
  void add(const std::vector<HeldPart>& gives, const std::vector<HeldPart>& takes, const plan::Transfers& more) {
    const auto append = [&](std::vector<plan::Transfer>& all, const std::vector<plan::Transfer>& some) {
      for (const plan::Transfer& transfer : some) {
        all.push_back({transfer.rank, from.size() + transfer.from, to.size() + transfer.to, transfer.rows});
      }
    };
    append(transfers.gives, more.gives);
    append(transfers.takes, more.takes);
    from.insert(from.end(), gives.begin(), gives.end());
    to.insert(to.end(), takes.begin(), takes.end());
  }
};

}  // namespace sherd::detail
