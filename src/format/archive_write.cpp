#include <fmt/format.h>

#include <deque>
#include <stdexcept>
#include <unordered_map>

#include "format/archive.h"
#include "format/pickle.h"
#include "format/serialization_id.h"
#include "format/zip.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

class ArchiveWriter {
 public:
  explicit ArchiveWriter(const std::function<void(std::span<const std::byte>)>& write) : write_(write) {}

  void add(const std::string& name, std::span<const std::byte> content) {
    names_.push_back("archive/" + name);
    const ZipEntry entry{
        .name = names_.back(), .offset = offset_, .size = static_cast<int64_t>(content.size()), .crc = crc32(content)};
    buffer_.clear();
    append_local_header(buffer_, entry);
    flush();
    if (!content.empty()) write_(content);
    buffer_.clear();
    append_descriptor(buffer_, entry);
    flush();
    offset_ = next_offset(offset_, static_cast<int64_t>(entry.name.size()), entry.size);
    entries_.push_back(entry);
  }
  void add(const std::string& name, std::string_view content) { add(name, std::as_bytes(std::span(content))); }

  void finish() {
    std::vector<std::string_view> names;
    for (const std::string& name : names_) names.push_back(std::string_view(name).substr(8));
    add(".data/serialization_id", serialization_id(hash_of_names(names), entries_));
    buffer_.clear();
    append_directory(buffer_, entries_, offset_);
    flush();
  }

 private:
  void flush() { write_(std::as_bytes(std::span(buffer_))); }

  const std::function<void(std::span<const std::byte>)>& write_;
  std::string buffer_;
  int64_t offset_ = 0;
  std::deque<std::string> names_;  // they stay where they are
  std::vector<ZipEntry> entries_;
};

}  // namespace

void write_archive(const Value& value, std::span<const StorageBytes> storages,
                   const std::function<void(std::span<const std::byte>)>& write) {
  std::unordered_map<std::string_view, size_t> sizes;
  for (const StorageBytes& storage : storages) {
    if (!sizes.emplace(storage.key, storage.bytes.size()).second) {
      throw std::invalid_argument(ErrorText("write_archive", "a storage is given twice").fact("storage", storage.key));
    }
  }
  const std::string pickled = pickle(value, [&](const TensorRef& tensor) {
    const auto found = sizes.find(tensor.storage);
    if (found == sizes.end() || static_cast<int64_t>(found->second) != tensor.storage_bytes) {
      throw std::invalid_argument(
          ErrorText("write_archive", "a tensor's storage is not among those given, or has another size")
              .fact("tensor", to_string(Value(tensor)))
              .fact("storage", fmt::format("\"{}\" of {} bytes", tensor.storage, tensor.storage_bytes))
              .fact("given", found == sizes.end() ? "none of that name" : fmt::format("{} bytes", found->second)));
    }
  });
  ArchiveWriter writer(write);
  writer.add("data.pkl", pickled);
  writer.add(".format_version", "1");
  writer.add(".storage_alignment", "64");
  writer.add("byteorder", "little");
  for (const StorageBytes& storage : storages) writer.add("data/" + storage.key, storage.bytes);
  writer.add("version", "3\n");
  writer.finish();
}

std::string archive_of(const Value& value) {
  std::string bytes;
  write_archive(value, {}, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

}  // namespace sherd::format
