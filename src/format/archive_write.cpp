#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>

#include "format/archive.h"
#include "format/pickle.h"
#include "format/serialization_id.h"
#include "format/zip.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr std::string_view kFolder = "archive/";
constexpr int64_t kIdLength = 40;

int64_t length(std::string_view text) { return static_cast<int64_t>(text.size()); }
uint32_t crc_of(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

std::string pickled(const Value& value, std::span<const StorageSize> storages) {
  std::unordered_map<std::string_view, int64_t> sizes;
  for (const StorageSize& storage : storages) {
    if (!sizes.emplace(storage.key, storage.bytes).second) {
      throw std::invalid_argument(ErrorText("write_archive", "a storage is given twice").fact("storage", storage.key));
    }
  }
  return pickle(value, [&](const TensorRef& tensor) {
    const auto found = sizes.find(tensor.storage);
    if (found == sizes.end() || found->second != tensor.storage_bytes) {
      throw std::invalid_argument(
          ErrorText("write_archive", "a tensor's storage is not among those given, or has another size")
              .fact("tensor", to_string(Value(tensor)))
              .fact("storage", fmt::format("\"{}\" of {} bytes", tensor.storage, tensor.storage_bytes))
              .fact("given", found == sizes.end() ? "none of that name" : fmt::format("{} bytes", found->second)));
    }
  });
}

}  // namespace

ArchiveLayout::ArchiveLayout(const Value& value, std::span<const StorageSize> storages) {
  std::string text = pickled(value, storages);
  const int64_t text_size = length(text);
  add("data.pkl", std::move(text), text_size);
  add(".format_version", "1", 1);
  add(".storage_alignment", "64", 2);
  add("byteorder", "little", 6);
  first_ = entries_.size();
  storages_ = storages.size();
  for (const StorageSize& storage : storages) add("data/" + storage.key, {}, storage.bytes);
  add("version", "3\n", 2);
  add(".data/serialization_id", {}, kIdLength);
  for (const Entry& entry : entries_) size_ += directory_entry_length(entry.offset, length(entry.name), entry.size);
  size_ += kDirectoryEnd;
}

void ArchiveLayout::add(std::string name, std::string content, int64_t size) {
  entries_.push_back({std::string(kFolder) + name, std::move(content), size_, size});
  size_ = next_offset(size_, length(entries_.back().name), size);
}

int64_t ArchiveLayout::offset(size_t storage) const {
  const Entry& entry = entries_[first_ + storage];
  return data_offset(entry.offset, length(entry.name), entry.size);
}

int64_t ArchiveLayout::text_length(size_t place) const {
  const int64_t begin = place == 0 ? 0 : offset(place - 1) + entries_[first_ + place - 1].size;
  return (place < storages_ ? offset(place) : size_) - begin;
}

std::string ArchiveLayout::text(size_t place, std::span<const uint32_t> crcs) const {
  const auto zip_entry = [&](size_t i) {
    const Entry& entry = entries_[i];
    const bool is_storage = i >= first_ && i < first_ + storages_;
    return ZipEntry{entry.name, entry.offset, entry.size,
                    !is_storage         ? crc_of(entry.content)
                    : place < storages_ ? crcs.back()
                                        : crcs[i - first_]};
  };
  std::string out;
  const size_t first = place == 0 ? 0 : first_ + place - 1;
  const size_t end = place < storages_ ? first_ + place : entries_.size() - 1;
  for (size_t i = first; i < end; ++i) {
    const ZipEntry entry = zip_entry(i);
    if (place == 0 || i > first) {
      append_local_header(out, entry);
      out += entries_[i].content;
    }
    append_descriptor(out, entry);
  }
  if (place < storages_) {
    // Its CRC stands behind it.
    const Entry& next = entries_[end];
    append_local_header(out, {next.name, next.offset, next.size, 0});
    return out;
  }
  std::vector<std::string_view> names;
  std::vector<ZipEntry> all;
  for (size_t i = 0; i < end; ++i) {
    names.push_back(std::string_view(entries_[i].name).substr(kFolder.size()));
    all.push_back(zip_entry(i));
  }
  const std::string id = serialization_id(hash_of_names(names), all);
  const Entry& last = entries_.back();
  all.push_back({last.name, last.offset, last.size, crc_of(id)});
  append_local_header(out, all.back());
  out += id;
  append_descriptor(out, all.back());
  append_directory(out, all, next_offset(last.offset, length(last.name), last.size));
  return out;
}

void write_archive(const Value& value, std::span<const StorageBytes> storages,
                   const std::function<void(std::span<const std::byte>)>& write) {
  std::vector<StorageSize> sizes;
  for (const StorageBytes& storage : storages)
    sizes.push_back({storage.key, static_cast<int64_t>(storage.bytes.size())});
  const ArchiveLayout layout(value, sizes);
  std::vector<uint32_t> crcs;
  for (size_t i = 0; i <= storages.size(); ++i) {
    const std::string text = layout.text(i, crcs);
    write(std::as_bytes(std::span(text)));
    if (i == storages.size()) break;
    crcs.push_back(crc32(storages[i].bytes));
    if (!storages[i].bytes.empty()) write(storages[i].bytes);
  }
}

std::string archive_of(const Value& value) {
  std::string bytes;
  write_archive(value, {}, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

}  // namespace sherd::format
