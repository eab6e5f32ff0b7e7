#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>

#include "format/archive.h"
#include "format/manifest.h"
#include "format/own_digests.h"
#include "format/pickle.h"
#include "format/serialization_id.h"
#include "format/zip.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr std::string_view kFolder = "archive/";
constexpr int64_t kIdLength = 40;
constexpr int64_t kDigestBytes = 16;

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

ArchiveLayout::ArchiveLayout(const Value& value, std::span<const StorageSize> storages, bool digests) {
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
  if (digests) add_digests();
  for (const Entry& entry : entries_) size_ += directory_entry_length(entry.offset, length(entry.name), entry.size);
  size_ += kDirectoryEnd;
}

void ArchiveLayout::add(const std::string& name, std::string content, int64_t size) {
  entries_.push_back({std::string(kFolder) + name, std::move(content), size_, size});
  size_ = next_offset(size_, length(entries_.back().name), size);
}

// The digests may need a block of their own.
void ArchiveLayout::add_digests() {
  int64_t directory = kDirectoryEnd;
  for (const Entry& entry : entries_) directory += directory_entry_length(entry.offset, length(entry.name), entry.size);
  const int64_t begin = size_;
  const std::string name = std::string(kFolder) + kDigestsRecord;
  int64_t end = begin;
  do {
    digests_ = block_count(end);
    const int64_t bytes = (digests_ + 1) * kDigestBytes;
    end = next_offset(begin, length(name), bytes) + directory + directory_entry_length(begin, length(name), bytes);
  } while (block_count(end) != digests_);
  add(kDigestsRecord, {}, (digests_ + 1) * kDigestBytes);
}

int64_t ArchiveLayout::digests_length() const { return digests_ == 0 ? 0 : size_ - entries_.back().offset; }

int64_t ArchiveLayout::offset(size_t storage) const {
  const Entry& entry = entries_[first_ + storage];
  return data_offset(entry.offset, length(entry.name), entry.size);
}

int64_t ArchiveLayout::text_length(size_t place) const {
  const int64_t begin = place == 0 ? 0 : offset(place - 1) + entries_[first_ + place - 1].size;
  return (place < storages_ ? offset(place) : size_ - digests_length()) - begin;
}

std::string ArchiveLayout::text(size_t place, std::span<const uint32_t> crcs) const {
  const bool at_end = place == storages_;
  std::string id;
  const std::vector<ZipEntry> all = at_end ? zip_entries(crcs, id) : std::vector<ZipEntry>();
  const auto zip_entry = [&](size_t i) {
    if (at_end) return all[i];
    const Entry& entry = entries_[i];
    const bool is_storage = i >= first_ && i < first_ + storages_;
    return ZipEntry{entry.name, entry.offset, entry.size, is_storage ? crcs.back() : crc_of(entry.content)};
  };
  std::string out;
  const size_t first = place == 0 ? 0 : first_ + place - 1;
  const size_t end = at_end ? all.size() : first_ + place;
  for (size_t i = first; i < end; ++i) {
    const ZipEntry entry = zip_entry(i);
    if (place == 0 || i > first) {
      append_local_header(out, entry);
      out += at_end && i + 1 == end ? id : entries_[i].content;
    }
    append_descriptor(out, entry);
  }
  if (!at_end) {
    // Its CRC stands behind it.
    const Entry& next = entries_[end];
    append_local_header(out, {next.name, next.offset, next.size, 0});
  } else if (digests_ == 0) {
    const ZipEntry& last = all.back();
    append_directory(out, all, next_offset(last.offset, length(last.name), last.size));
  }
  return out;
}

// All but that of the digests; the last one is `id`.
std::vector<ZipEntry> ArchiveLayout::zip_entries(std::span<const uint32_t> crcs, std::string& id) const {
  const size_t last = entries_.size() - (digests_ == 0 ? 1 : 2);
  std::vector<std::string_view> names;
  std::vector<ZipEntry> all;
  for (size_t i = 0; i < last; ++i) {
    const Entry& entry = entries_[i];
    const bool is_storage = i >= first_ && i < first_ + storages_;
    names.push_back(std::string_view(entry.name).substr(kFolder.size()));
    all.push_back({entry.name, entry.offset, entry.size, is_storage ? crcs[i - first_] : crc_of(entry.content)});
  }
  id = serialization_id(hash_of_names(names), all);
  all.push_back({entries_[last].name, entries_[last].offset, entries_[last].size, crc_of(id)});
  return all;
}

std::string ArchiveLayout::digests_text(std::span<const uint32_t> crcs, std::span<const Digest> blocks) const {
  std::string id;
  std::vector<ZipEntry> all = zip_entries(crcs, id);
  const std::string content = digests_record(blocks, all);
  const Entry& last = entries_.back();
  all.push_back({last.name, last.offset, last.size, crc_of(content)});
  std::string out;
  append_local_header(out, all.back());
  out += content;
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
