#pragma once
// Digests of a file's blocks, made while its bytes go by.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "format/manifest.h"

namespace sherd::format {

class BlockDigests {
 public:
  BlockDigests();
  ~BlockDigests();
  /// The next bytes of the file.
  void add(std::span<const std::byte> bytes);
  /// All blocks, the last one as long as it is.
  std::vector<Digest> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sherd::format
