#include "format/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_set>

#include "format/pickle_text.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr int64_t kEnd = 22;
constexpr int64_t kLocator = 20;
constexpr int64_t kEnd64 = 56;
constexpr int64_t kEntry = 46;
constexpr int64_t kLocalHeader = 30;
constexpr uint16_t kDeflated = 8;
constexpr int64_t kMostComment = 65535;
constexpr int64_t kMostDirectory = int64_t{1} << 30;

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}
uint16_t u16(std::string_view bytes, size_t at) { return number_at<uint16_t>(bytes, at); }
uint32_t u32(std::string_view bytes, size_t at) { return number_at<uint32_t>(bytes, at); }
uint64_t u64(std::string_view bytes, size_t at) { return number_at<uint64_t>(bytes, at); }

/// One entry of the directory, with the field of zip64 already looked up.
struct Entry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t header = 0;
  int64_t data = 0;

  bool is_code() const { return std::string_view(name).substr(name.find('/') + 1).starts_with("code/"); }
};

class ArchiveReader {
 public:
  ArchiveReader(const ByteSource& source, std::string_view name) : source_(source), name_(name) {}

  Archive read() {
    find_directory();
    read_entries();
    for (Entry& entry : entries_) check_local_header(entry);
    check_overlaps();
    return make_archive();
  }

 private:
  [[noreturn]] void fail(std::string_view problem, std::string_view record = {}) const {
    ErrorText text("read_archive", problem);
    text.fact("in", name_);
    if (!record.empty()) text.fact("record", record);
    throw std::invalid_argument(text);
  }

  std::string bytes(uint64_t offset, uint64_t count, std::string_view what) const {
    const auto size = static_cast<uint64_t>(source_.size());
    if (offset > size || count > size - offset) {
      fail(fmt::format("{} lies outside of the archive: bytes {} to {} of {}", what, offset, offset + count, size));
    }
    std::string text(count, '\0');
    source_.read(static_cast<int64_t>(offset), std::as_writable_bytes(std::span(text)));
    return text;
  }

  void find_directory() {
    const int64_t size = source_.size();
    if (size < kEnd) not_an_archive();
    // Nearly always there is no comment, and the end is where it is expected.
    int64_t begin = std::max<int64_t>(0, size - kEnd - kLocator);
    std::string tail = bytes(static_cast<uint64_t>(begin), static_cast<uint64_t>(size - begin), "the end");
    size_t end = tail.size() - kEnd;
    if (!is_end(tail, end)) {
      begin = std::max<int64_t>(0, size - kEnd - kLocator - kMostComment);
      tail = bytes(static_cast<uint64_t>(begin), static_cast<uint64_t>(size - begin), "the end");
      for (end = tail.size() - kEnd + 1; end-- > 0 && !is_end(tail, end);) {
      }
      if (end > tail.size()) not_an_archive();
    }
    if (u16(tail, end + 4) != 0 || u16(tail, end + 6) != 0) fail("it is one part of several");
    count_ = u16(tail, end + 10);
    directory_size_ = u32(tail, end + 12);
    directory_ = u32(tail, end + 16);
    uint64_t limit = static_cast<uint64_t>(begin) + end;
    if (end >= kLocator && tail.compare(end - kLocator, 4, "PK\6\7") == 0) {
      const uint64_t at = u64(tail, end - kLocator + 8);
      const std::string record = bytes(at, kEnd64, "the zip64 end record");
      if (!record.starts_with("PK\6\6")) fail("the zip64 end record is not where the archive says");
      count_ = u64(record, 32);
      directory_size_ = u64(record, 40);
      directory_ = u64(record, 48);
      limit = at;
    }
    if (directory_ > limit || directory_size_ > limit - directory_) {
      fail(fmt::format("its directory lies outside of it: {} bytes at {}", directory_size_, directory_));
    }
    if (directory_size_ > kMostDirectory) fail(fmt::format("its directory has {} bytes", directory_size_));
    if (count_ > directory_size_ / kEntry) {
      fail(fmt::format("a directory of {} bytes cannot hold {} records", directory_size_, count_));
    }
  }

  [[noreturn]] void not_an_archive() const {
    ErrorText text("read_archive", "this is no zip archive");
    text.fact("in", name_);
    const std::string first = bytes(0, static_cast<uint64_t>(std::min<int64_t>(source_.size(), 14)), "the beginning");
    if (first == std::string_view("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14)) {
      text.help("torch.save of PyTorch before 1.6 wrote it: write it again, torch.save(torch.load(path), path)");
    }
    throw std::invalid_argument(text);
  }

  static bool is_end(std::string_view tail, size_t at) {
    return tail.size() - at >= kEnd && tail.substr(at, 4) == "PK\5\6" && u16(tail, at + 20) == tail.size() - at - kEnd;
  }

  void read_entries() {
    const std::string directory = bytes(directory_, directory_size_, "the directory");
    entries_.reserve(count_);
    std::string_view left = directory;
    for (uint64_t i = 0; i < count_; ++i) {
      if (left.size() < kEntry || !left.starts_with("PK\1\2"))
        fail(fmt::format("entry {} of its directory is damaged", i));
      const size_t name = u16(left, 28);
      const size_t extra = u16(left, 30);
      const size_t length = kEntry + name + extra + u16(left, 32);
      if (length > left.size()) fail(fmt::format("entry {} of its directory is damaged", i));
      Entry entry{.name = std::string(left.substr(kEntry, name)),
                  .flags = u16(left, 8),
                  .method = u16(left, 10),
                  .crc = u32(left, 16),
                  .packed = u32(left, 20),
                  .size = u32(left, 24),
                  .header = u32(left, 42)};
      take_zip64(entry, left.substr(kEntry + name, extra));
      check_entry(entry);
      left.remove_prefix(length);
      if (!entry.name.ends_with('/')) entries_.push_back(std::move(entry));  // a folder
    }
    if (!left.empty()) fail(fmt::format("{} bytes follow the last entry of its directory", left.size()));
  }

  /// The numbers that did not fit, in this order, each only where it is missing.
  void take_zip64(Entry& entry, std::string_view extra) const {
    while (extra.size() >= 4) {
      const uint16_t id = u16(extra, 0);
      const size_t length = u16(extra, 2);
      if (length > extra.size() - 4) fail("a field of its directory is damaged", entry.name);
      std::string_view field = extra.substr(4, length);
      extra.remove_prefix(4 + length);
      if (id != 1) continue;
      for (uint64_t* number : {&entry.size, &entry.packed, &entry.header}) {
        if (*number != 0xFFFFFFFF) continue;
        if (field.size() < 8) fail("its size or place is missing", entry.name);
        *number = u64(field, 0);
        field.remove_prefix(8);
      }
    }
  }

  void check_entry(const Entry& entry) const {
    if (!is_utf8(entry.name) || entry.name.find('\0') != std::string::npos || entry.name.empty()) {
      fail("a record's name is no text");
    }
    if ((entry.flags & 1) != 0) fail("a record is encrypted", entry.name);
    // TorchScript compresses its code, which nobody here asks for.
    if (entry.is_code() && entry.method == kDeflated) return;
    if (entry.method != 0 || entry.packed != entry.size) {
      ErrorText text("read_archive", "a record is compressed");
      text.fact("in", name_).fact("record", entry.name);
      text.help("torch.save stores its records as they are; pack it again with zip -0");
      throw std::invalid_argument(text);
    }
  }

  void check_local_header(Entry& entry) const {
    // The header with the name, the name being as long as the directory says.
    const std::string header = bytes(entry.header, kLocalHeader + entry.name.size(), "a record's header");
    if (!header.starts_with("PK\3\4")) fail("a record does not begin where the directory says", entry.name);
    const bool sizes_follow = (entry.flags & 8) != 0;
    if (u16(header, 26) != entry.name.size() || header.compare(kLocalHeader, std::string::npos, entry.name) != 0 ||
        u16(header, 6) != entry.flags || u16(header, 8) != entry.method ||
        (!sizes_follow &&
         (u32(header, 14) != entry.crc || u32(header, 22) != std::min<uint64_t>(entry.size, 0xFFFFFFFF)))) {
      fail("a record's header says something else than the directory", entry.name);
    }
    const uint64_t data = entry.header + header.size() + u16(header, 28);
    if (data > directory_ || entry.packed > directory_ - data) {
      fail(fmt::format("a record lies outside of the archive: {} bytes at {}, before the directory at {}", entry.packed,
                       data, directory_),
           entry.name);
    }
    entry.data = static_cast<int64_t>(data);
  }

  void check_overlaps() const {
    std::vector<const Entry*> sorted;
    for (const Entry& entry : entries_) sorted.push_back(&entry);
    std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->header < b->header; });
    for (size_t i = 1; i < sorted.size(); ++i) {
      const Entry& before = *sorted[i - 1];
      if (static_cast<uint64_t>(before.data) + before.packed > sorted[i]->header) {
        fail(fmt::format("records overlap: {} and {}", before.name, sorted[i]->name));
      }
    }
  }

  Archive make_archive() {
    Archive archive;
    if (entries_.empty()) fail("it is empty");
    archive.folder = entries_[0].name.substr(0, entries_[0].name.find('/'));
    std::unordered_set<std::string_view> names;
    for (const Entry& entry : entries_) {
      if (!names.insert(entry.name).second) fail("a record stands twice", entry.name);
      if (!entry.name.starts_with(archive.folder + "/")) {
        fail(fmt::format("a record lies outside of the folder {}", archive.folder), entry.name);
      }
      if (entry.method != 0) continue;
      archive.records.push_back({.name = entry.name.substr(archive.folder.size() + 1),
                                 .offset = entry.data,
                                 .size = static_cast<int64_t>(entry.size),
                                 .crc = entry.crc});
    }
    if (archive.find("version") == nullptr && archive.find(".data/version") == nullptr) {
      fail("it has no record \"version\", as all of torch's archives do");
    }
    return archive;
  }

  const ByteSource& source_;
  std::string_view name_;
  uint64_t count_ = 0;
  uint64_t directory_ = 0;
  uint64_t directory_size_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace

void MemorySource::read(int64_t offset, std::span<std::byte> into) const {
  const auto from = static_cast<size_t>(offset);
  if (offset < 0 || from > bytes_.size() || into.size() > bytes_.size() - from) {
    throw std::runtime_error(ErrorText("read", "the bytes end too early")
                                 .fact("asked for", fmt::format("{} at {}", into.size(), offset))
                                 .fact("there are", std::to_string(bytes_.size())));
  }
  std::copy_n(bytes_.begin() + offset, into.size(), into.begin());
}

const Record* Archive::find(std::string_view name) const {
  for (const Record& record : records) {
    if (record.name == name) return &record;
  }
  return nullptr;
}

Archive read_archive(const ByteSource& source, std::string_view name) { return ArchiveReader(source, name).read(); }

std::string read_record(const ByteSource& source, const Record& record, std::string_view name) {
  std::string bytes(static_cast<size_t>(record.size), '\0');
  source.read(record.offset, std::as_writable_bytes(std::span(bytes)));
  const uint32_t crc = crc32(std::as_bytes(std::span(bytes)));
  if (crc != record.crc) {
    const int64_t begin = source.origin() + record.offset;
    throw std::invalid_argument(ErrorText("read_record", "the bytes are not those that were written")
                                    .fact("in", name)
                                    .fact("record", record.name)
                                    .fact("bytes", fmt::format("{} to {}", begin, begin + record.size))
                                    .fact("CRC-32", fmt::format("{:08x}, written {:08x}", crc, record.crc)));
  }
  return bytes;
}

}  // namespace sherd::format
