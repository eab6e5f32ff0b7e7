#pragma once
// sherd.manifest: a length and digests for every file of a checkpoint, beside files that PyTorch reads and this one,
// which it ignores. With a base, also where blocks lie that were not written again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sherd::format {

inline constexpr const char* kManifestName = "sherd.manifest";
/// Its name in stores that cannot put a folder in place in one step: there are two for a moment.
inline std::string manifest_name(const std::string& id) { return std::string(kManifestName) + "-" + id; }
inline constexpr int64_t kBlock = int64_t{1} << 20;
/// Of a file of this length.
constexpr int64_t block_count(int64_t length) { return length / kBlock + (length % kBlock != 0 ? 1 : 0); }

/// XXH3, 128 bits.
struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};
Digest digest_of(std::span<const std::byte> bytes);
std::string to_string(const Digest& digest);  // 32 hexadecimal digits

/// The digests of a file's blocks, from bytes that come in parts of any length, front to back.
class BlockDigests {
 public:
  BlockDigests();
  ~BlockDigests();
  BlockDigests(BlockDigests&&) noexcept;
  BlockDigests& operator=(BlockDigests&&) noexcept;

  void add(std::span<const std::byte> bytes);
  int64_t length() const { return length_; }  // of everything so far
  /// All blocks, the last one shorter where the length is no multiple of kBlock. Nothing may be added afterwards.
  std::vector<Digest> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;  // of the block that is not full yet
  int64_t length_ = 0;
  std::vector<Digest> blocks_;
};

/// Where a block's bytes are: file `file` of checkpoint `base` (0 this one, else bases[base - 1]), at `offset` there.
struct BlockPlace {
  int32_t base = 0;
  int32_t file = 0;  // a place in stored_files
  int64_t offset = 0;
  bool operator==(const BlockPlace&) const = default;
};

struct ManifestFile {
  std::string name;  // as .metadata names it
  int64_t length = 0;
  std::vector<Digest> blocks;      // of kBlock bytes each, the last one shorter
  std::vector<BlockPlace> places;  // one per block in an incremental checkpoint; else empty: the file itself
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  std::string id;  // the save_id in .metadata: a manifest with another one belongs to another checkpoint
  std::vector<std::string> bases;         // folders, relative to the one above this checkpoint where they lie there
  std::vector<std::string> base_ids;      // their ids
  std::vector<std::string> stored_files;  // names for BlockPlace
  std::vector<ManifestFile> files;        // sorted by name
  bool operator==(const Manifest&) const = default;

  const ManifestFile* find(std::string_view name) const;
};

std::string encode_manifest(const Manifest& manifest);
/// Throws std::invalid_argument where its own digest or form is wrong.
Manifest decode_manifest(std::span<const std::byte> bytes, std::string_view source);

}  // namespace sherd::format
