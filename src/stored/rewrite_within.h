#pragma once
// rewrite_checkpoint for a program that has other things in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "sherd/convert.h"

namespace sherd::stored {

/// What a program that trains has left for it.
inline constexpr int64_t kBesideAModel = int64_t{48} << 20;

/// rewrite_checkpoint, whose threads take about `memory` bytes together: there are fewer of them where that is little.
RewriteResult rewrite_within(int64_t memory, const std::vector<std::string>& from, const std::string& to,
                             const RewriteOptions& options);

}  // namespace sherd::stored
