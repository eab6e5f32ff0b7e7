#pragma once
// Files of a checkpoint that are to be written: each a row of pieces, whose lengths are all known beforehand.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "format/dcp.h"
#include "format/manifest.h"
#include "sherd/box.h"

namespace sherd::stored {

/// The elements of a box of a tensor, in row-major order.
struct Elements {
  size_t source = 0;  // which checkpoint
  size_t entry = 0;   // a place in its metadata
  Box box;
  int64_t element_bytes = 1;
};

/// Text that has CRCs in it: those of the last `wanted` Elements before it in the file, in their order.
struct LateText {
  int64_t length = 0;
  size_t wanted = 1;
  std::function<std::string(std::span<const uint32_t> crcs)> make;
};

/// Text that has the digests of all blocks of the file in it, made with kDigestZero (format/own_digests.h) in its
/// place; and, where LateTexts stand in the file, the CRCs of all its Elements.
struct DigestText {
  int64_t length = 0;
  std::function<std::string(std::span<const uint32_t> crcs, std::span<const format::Digest> blocks)> make;
};

using Piece = std::variant<std::string, Elements, LateText, DigestText>;
int64_t length_of(const Piece& piece);

struct FilePlan {
  std::string name;           // in the draft
  std::vector<Piece> pieces;  // at most one of them a DigestText
  int64_t size = 0;

  void add(Piece piece);
  /// Zeros up to a multiple of `alignment`.
  void align(int64_t alignment);
};

}  // namespace sherd::stored
