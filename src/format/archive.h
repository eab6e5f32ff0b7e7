#pragma once
// torch's zip archives (torch.save, one item of a .distcp file): where each record lies, and writing them byte for byte
// as PyTorchStreamWriter does.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/dtype.h"
#include "format/value.h"
#include "sherd/box.h"

namespace sherd::format {

struct Digest;
struct ZipEntry;

/// Bytes that can be fetched by place: a part of a file, or memory. Throws where it ends too early.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t offset, std::span<std::byte> into) const = 0;
  /// Where it begins in what errors name: they count bytes from there.
  virtual int64_t origin() const { return 0; }
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes, int64_t origin = 0) : bytes_(bytes), origin_(origin) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(int64_t offset, std::span<std::byte> into) const override;
  int64_t origin() const override { return origin_; }

 private:
  std::span<const std::byte> bytes_;
  int64_t origin_;
};

/// CRC-32 as zip counts it; `before` is the sum of the bytes in front of these.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);
/// The CRC-32 of bytes whose first part has the sum `first`, and whose rest, `rest_size` bytes long, has `rest`: for
/// parts that several threads sum up.
uint32_t crc32_of_both(uint32_t first, uint32_t rest, int64_t rest_size);

struct Record {
  std::string name;    // without the archive's folder: "data.pkl", "data/0"
  int64_t offset = 0;  // of its bytes, from the archive's beginning
  int64_t size = 0;
  uint32_t crc = 0;
};

struct Archive {
  std::string folder;  // "archive"
  std::vector<Record> records;
  const Record* find(std::string_view name) const;
};

/// The directory of an archive. Everything that is read is bounded by the source's size: entries outside of it,
/// overlapping or compressed ones (TorchScript's code apart, which is left out), counts that do not fit, names that
/// occur twice, local headers that say something else than the directory, a missing "version" are refused. Throws
/// std::invalid_argument; `name` begins the facts.
Archive read_archive(const ByteSource& source, std::string_view name);
/// A record's bytes, its CRC checked.
std::string read_record(const ByteSource& source, const Record& record, std::string_view name);

/// One tensor that is alone in its archive, as a .distcp file holds it: `head`, then the elements, then `tail`.
struct TensorItem {
  DType dtype = DType::f32;
  Dims sizes;
  Dims strides;  // dense in some order: the elements fill numel(sizes) places
  int64_t data_bytes() const { return numel(sizes) * size_of(dtype); }
};
struct ItemLengths {
  int64_t head = 0;  // a multiple of 64
  int64_t data = 0;
  int64_t tail = 0;
  int64_t total() const { return head + data + tail; }
};
/// Without writing anything, in well under a microsecond: every rank computes where the others' items lie.
ItemLengths lengths_of(const TensorItem& item);
std::string head_of(const TensorItem& item);
std::string tail_of(const TensorItem& item, uint32_t crc_of_data);

/// torch.save of a value whose tensors' bytes come later: text, the bytes of the first storage, text, those of the
/// second, and so on, text. Each TensorRef's `storage` names one of the storages.
struct StorageSize {
  std::string key;
  int64_t bytes = 0;
};
/// The record with digests of the whole file, where it has one (own_digests.h).
inline constexpr const char* kDigestsRecord = ".data/sherd.digests";

class ArchiveLayout {
 public:
  /// `digests`: with a record of the digests of all blocks. Throws std::invalid_argument for tensors whose storage is
  /// not among them, and for what pickle() refuses.
  ArchiveLayout(const Value& value, std::span<const StorageSize> storages, bool digests = false);

  size_t storage_count() const { return storages_; }
  int64_t size() const { return size_; }
  /// Where the bytes of a storage begin.
  int64_t offset(size_t storage) const;
  int64_t text_length(size_t place) const;
  /// The text before storage `place`, or after the last one. `crcs` are those of the storages before it; of the text
  /// before a storage, the last of them is enough.
  std::string text(size_t place, std::span<const uint32_t> crcs) const;
  /// With digests, the text after that one: from the head of their record on.
  int64_t digests_length() const;
  std::string digests_text(std::span<const uint32_t> crcs, std::span<const Digest> blocks) const;

 private:
  struct Entry {
    std::string name;
    std::string content;  // of a record that is no storage
    int64_t offset = 0;
    int64_t size = 0;
  };
  void add(const std::string& name, std::string content, int64_t size);
  void add_digests();
  std::vector<ZipEntry> zip_entries(std::span<const uint32_t> crcs, std::string& id) const;

  std::vector<Entry> entries_;
  size_t first_ = 0;  // the entry of the first storage
  size_t storages_ = 0;
  int64_t digests_ = 0;  // how many there are room for
  int64_t size_ = 0;
};

struct StorageBytes {
  std::string key;
  std::span<const std::byte> bytes;
};
/// Hands the archive out in pieces, front to back.
void write_archive(const Value& value, std::span<const StorageBytes> storages,
                   const std::function<void(std::span<const std::byte>)>& write);
/// The same, whole: for values without tensors.
std::string archive_of(const Value& value);

}  // namespace sherd::format
