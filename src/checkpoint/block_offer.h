#pragma once
// What a rank tells the others of the blocks that it wants, and of the memory in which it would share them.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sherd::detail {

/// Blocks [begin, end) of a file.
struct BlockRange {
  int32_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const BlockRange&) const = default;
};

struct BlockOffer {
  std::string host;
  pid_t pid = 0;
  int descriptor = -1;
  uint64_t token = 0;              // stands in the memory
  std::vector<BlockRange> wanted;  // ascending, without overlaps
  bool operator==(const BlockOffer&) const = default;
};
std::string encode(const BlockOffer& offer);
/// The inverse; of no bytes, the offer of a rank that shares nothing. Throws c10::ValueError where they end too early,
/// and for ranges that are empty, overlap or are not ascending.
BlockOffer decode_offer(const std::string& bytes);

}  // namespace sherd::detail
