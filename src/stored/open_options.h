#pragma once
#include <cstdint>
#include <string>

namespace sherd::stored {

/// How a checkpoint is read, and the words of its errors.
struct OpenOptions {
  /// Digests, where there are any, and CRCs are compared.
  bool verify = true;
  /// What cannot be read beside the metadata, such as a damaged manifest, is as if it were not there.
  bool tolerant = false;
  /// Who reads: where ranks did not talk while saving, each has objects and whole tensors of its own.
  int64_t rank = 0;
  /// Then also those of the other ranks, as "name (rank 3)".
  bool every_rank = false;
  /// Whoever opens it is going to load from it, as this rank: most likely what the rank of its number saved. Where that
  /// is little, a disk begins to bring it while the metadata are read.
  bool loads = false;
  /// How many threads read what is wanted at once.
  int threads = 1;
  std::string operation = "load";
  /// How a user asks for verify = false.
  std::string no_verify = "LoadOptions{.verify = false}";
};

/// The help line where bytes are damaged.
inline std::string take_as_is(const OpenOptions& options) {
  return "another checkpoint, or " + options.no_verify + " to take the bytes as they are";
}

}  // namespace sherd::stored
