#include "stored/verify_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "format/transforms.h"
#include "storage/in_threads.h"

namespace sherd::stored {
namespace {

using format::kBlock;

// Read at once, so that the bytes are summed up while they are in the processor's cache.
constexpr int64_t kPiece = int64_t{1} << 20;
// For one thread at a time.
constexpr int64_t kTask = int64_t{16} << 20;

void read_at(const StoredFile& file, int64_t offset, std::span<std::byte> into) {
  const ReadRequest request{offset, into};
  file.read({&request, 1});
}

std::span<std::byte> scratch(int64_t size) {
  thread_local std::vector<std::byte> bytes;
  if (static_cast<int64_t>(bytes.size()) < size) bytes.resize(static_cast<size_t>(size));
  return {bytes.data(), static_cast<size_t>(size)};
}

// A part of a file, for parsers.
class PartSource final : public format::ByteSource {
 public:
  PartSource(const StoredFile& file, int64_t offset, int64_t size) : file_(file), offset_(offset), size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> into) const override {
    if (offset < 0 || offset > size_ - static_cast<int64_t>(into.size())) {
      throw std::runtime_error("the bytes end too early");
    }
    if (!into.empty()) read_at(file_, offset_ + offset, into);
  }

 private:
  const StoredFile& file_;
  int64_t offset_;
  int64_t size_;
};

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

bool has_whole_archive(const StoredFile& file, int64_t offset, int64_t length) {
  try {
    const PartSource source(file, offset, length);
    const format::Archive archive = format::read_archive(source, "");
    return std::all_of(archive.records.begin(), archive.records.end(), [&](const format::Record& record) {
      uint32_t sum = 0;
      for (int64_t at = 0; at < record.size; at += kPiece) {
        const auto part = scratch(kPiece).first(static_cast<size_t>(std::min(kPiece, record.size - at)));
        source.read(record.offset + at, part);
        sum = format::crc32(part, sum);
      }
      return sum == record.crc;
    });
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<Damage> DamageList::take() {
  std::sort(list_.begin(), list_.end(), [](const Damage& a, const Damage& b) {
    const auto begin = [](const Damage& d) { return d.bytes ? d.bytes->begin : -1; };
    return std::pair(std::string_view(a.file), begin(a)) < std::pair(std::string_view(b.file), begin(b));
  });
  std::vector<Damage> merged;
  for (Damage& damage : list_) {
    const bool joins = !merged.empty() && damage.bytes && merged.back().bytes && merged.back().file == damage.file &&
                       merged.back().problem == damage.problem && merged.back().bytes->end == damage.bytes->begin &&
                       damage.names.empty() && merged.back().names.empty();
    if (!joins) {
      merged.push_back(std::move(damage));
      continue;
    }
    merged.back().bytes->end = damage.bytes->end;
    merged.back().detail.clear();  // of one block alone
  }
  return merged;
}

void ByteChecks::unreadable(const std::string& name, std::optional<Damage::Bytes> bytes, const std::exception& error) {
  damage_.add({.problem = "cannot be read", .file = name, .bytes = bytes, .detail = first_line(error)});
}

void ByteChecks::wrong_crc(const std::string& name, int64_t start, const format::Record& record, uint32_t found) {
  damage_.add({.problem = "the bytes are not those that were saved",
               .file = name,
               .bytes = Damage::Bytes{start + record.offset, start + record.offset + record.size},
               .detail = fmt::format("record {}: CRC saved {:08x}, found {:08x}", record.name, record.crc, found)});
}

void ByteChecks::check_blocks(const std::string& name, const format::ManifestFile& digests, size_t first, size_t last,
                              const StoredFile& file, int64_t file_offset, ProgressCount& count) {
  const std::span<std::byte> bytes = scratch(kPiece);
  for (size_t block = first; block < last; ++block) {
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    const int64_t size = std::min(kBlock, digests.length - begin);
    const int64_t at = file_offset + static_cast<int64_t>(block - first) * kBlock;
    try {
      format::BlockDigests sums;
      for (int64_t done = 0; done < size; done += kPiece) {
        const auto part = bytes.first(static_cast<size_t>(std::min(kPiece, size - done)));
        read_at(file, at + done, part);
        sums.add(part);
      }
      const format::Digest found = sums.finish().at(0);
      ++digests_;
      if (found != digests.blocks[block]) {
        damage_.add(
            {.problem = "the bytes are not those that were saved",
             .file = name,
             .bytes = Damage::Bytes{begin, begin + size},
             .detail = fmt::format("digest saved {}, found {}", to_string(digests.blocks[block]), to_string(found))});
      }
    } catch (const std::runtime_error& error) {
      unreadable(name, Damage::Bytes{begin, begin + size}, error);
    }
    count.add(size);
  }
}

void ByteChecks::add_blocks(const std::string& name, const std::string& path, const format::ManifestFile& digests,
                            const PathOf& path_of) {
  constexpr size_t kBlocks = kTask / kBlock;
  const size_t count = digests.blocks.size();
  total_ += digests.length;
  for (size_t first = 0; first < count;) {
    size_t last = std::min(count, first + kBlocks);
    int64_t offset = static_cast<int64_t>(first) * kBlock;
    std::string where = path;
    if (!digests.places.empty()) {
      // As many as follow each other in one file.
      const format::BlockPlace& place = digests.places[first];
      offset = place.offset;
      where = path_of(place);
      last = first + 1;
      while (last < std::min(count, first + kBlocks) && digests.places[last].base == place.base &&
             digests.places[last].file == place.file &&
             digests.places[last].offset == offset + static_cast<int64_t>(last - first) * kBlock) {
        ++last;
      }
    }
    tasks_.push_back({name, std::move(where),
                      [this, name, &digests, first, last, offset](const StoredFile& file, ProgressCount& progress) {
                        check_blocks(name, digests, first, last, file, offset, progress);
                      }});
    first = last;
  }
}

void ByteChecks::check_records(const std::string& name, const Item& item, const format::ByteSource& source,
                               const std::function<void(int64_t)>& done) {
  const format::Archive archive = format::read_archive(source, name);
  const std::span<std::byte> bytes = scratch(2 * kPiece).last(kPiece);  // the front may hold the item
  for (const format::Record& record : archive.records) {
    uint32_t sum = 0;
    for (int64_t at = 0; at < record.size; at += kPiece) {
      const auto part = bytes.first(static_cast<size_t>(std::min(kPiece, record.size - at)));
      source.read(record.offset + at, part);
      sum = format::crc32(part, sum);
      done(static_cast<int64_t>(part.size()));
    }
    ++crcs_;
    if (sum != record.crc) wrong_crc(name, item.transforms == nullptr ? item.offset : 0, record, sum);
  }
}

void ByteChecks::check_item(const std::string& name, const Item& item, const StoredFile& file, ProgressCount& count) {
  int64_t reported = 0;
  try {
    if (item.transforms != nullptr) {
      std::string stored(static_cast<size_t>(item.length), '\0');
      read_at(file, item.offset, std::as_writable_bytes(std::span(stored)));
      const std::string plain = format::decode(*item.transforms, std::as_bytes(std::span(stored)), item.most);
      check_records(name, item, format::MemorySource(std::as_bytes(std::span(plain))), [](int64_t) {});
    } else if (item.length <= kPiece) {
      scratch(2 * kPiece);
      const std::span<std::byte> bytes = scratch(2 * kPiece).first(static_cast<size_t>(item.length));
      read_at(file, item.offset, bytes);
      check_records(name, item, format::MemorySource(bytes), [](int64_t) {});
    } else {
      check_records(name, item, PartSource(file, item.offset, item.length), [&](int64_t bytes) {
        reported += bytes;
        count.add(bytes);
      });
    }
  } catch (const std::logic_error& error) {
    unreadable(name, Damage::Bytes{item.offset, item.offset + item.length}, error);
  } catch (const std::runtime_error& error) {
    unreadable(name, Damage::Bytes{item.offset, item.offset + item.length}, error);
  }
  count.add(item.length - reported);
}

// Of a record that several threads share: each part's CRC, and how many are still missing.
struct ByteChecks::Sums {
  std::vector<uint32_t> parts;
  std::atomic<size_t> missing;
};

void ByteChecks::check_large_record(const std::string& name, const std::string& path, int64_t start,
                                    const format::Record& record) {
  const auto parts = static_cast<size_t>((record.size + kTask - 1) / kTask);
  const auto sums = std::make_shared<Sums>();
  sums->parts.resize(parts);
  sums->missing = parts;
  for (size_t i = 0; i < parts; ++i) {
    tasks_.push_back({name, path, [this, name, start, record, sums, i](const StoredFile& file, ProgressCount& count) {
                        const int64_t begin = static_cast<int64_t>(i) * kTask;
                        const int64_t end = std::min(begin + kTask, record.size);
                        uint32_t sum = 0;
                        for (int64_t at = begin; at < end; at += kPiece) {
                          const auto part = scratch(kPiece).first(static_cast<size_t>(std::min(kPiece, end - at)));
                          read_at(file, start + record.offset + at, part);
                          sum = format::crc32(part, sum);
                          count.add(static_cast<int64_t>(part.size()));
                        }
                        sums->parts[i] = sum;
                        if (--sums->missing > 0) return;
                        uint32_t all = sums->parts[0];
                        for (size_t p = 1; p < sums->parts.size(); ++p) {
                          const int64_t size = std::min(kTask, record.size - static_cast<int64_t>(p) * kTask);
                          all = format::crc32_of_both(all, sums->parts[p], size);
                        }
                        ++crcs_;
                        if (all != record.crc) wrong_crc(name, start, record, all);
                      }});
  }
}

// Its directory is read at once, so that its records can be shared among threads.
void ByteChecks::add_large_item(const std::string& name, const std::string& path, const Item& item) {
  try {
    const auto file = storage_.open(path);
    const PartSource source(*file, item.offset, item.length);
    const format::Archive archive = format::read_archive(source, name);
    total_ -= item.length;
    for (const format::Record& record : archive.records) {
      total_ += record.size;
      if (record.size > kTask) {
        check_large_record(name, path, item.offset, record);
        continue;
      }
      tasks_.push_back({name, path, [this, name, item, record](const StoredFile& opened, ProgressCount& count) {
                          const std::span<std::byte> bytes = scratch(record.size);
                          if (!bytes.empty()) read_at(opened, item.offset + record.offset, bytes);
                          ++crcs_;
                          const uint32_t sum = format::crc32(bytes);
                          if (sum != record.crc) wrong_crc(name, item.offset, record, sum);
                          count.add(record.size);
                        }});
    }
  } catch (const std::logic_error& error) {
    unreadable(name, Damage::Bytes{item.offset, item.offset + item.length}, error);
  } catch (const std::runtime_error& error) {
    unreadable(name, Damage::Bytes{item.offset, item.offset + item.length}, error);
  }
}

void ByteChecks::add_archives(const std::string& name, const std::string& path, std::vector<Item> items) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.offset < b.offset; });
  for (size_t first = 0; first < items.size();) {
    if (items[first].length > kTask && items[first].transforms == nullptr) {
      total_ += items[first].length;
      add_large_item(name, path, items[first]);
      ++first;
      continue;
    }
    std::vector<Item> some;
    int64_t bytes = 0;
    while (first < items.size() && bytes + items[first].length <= kTask) {
      bytes += items[first].length;
      some.push_back(items[first++]);
    }
    if (some.empty()) {  // a large one that is compressed
      bytes = items[first].length;
      some.push_back(items[first++]);
    }
    total_ += bytes;
    tasks_.push_back({name, path, [this, name, some = std::move(some)](const StoredFile& file, ProgressCount& count) {
                        for (const Item& item : some) check_item(name, item, file, count);
                      }});
  }
}

void ByteChecks::add_plain(const std::string& name, const std::string& path, int64_t size) {
  total_ += size;
  for (int64_t begin = 0; begin < size; begin += kTask) {
    tasks_.push_back({name, path, [begin, size](const StoredFile& file, ProgressCount& count) {
                        const int64_t end = std::min(begin + kTask, size);
                        for (int64_t at = begin; at < end; at += kPiece) {
                          const int64_t part = std::min(kPiece, end - at);
                          read_at(file, at, scratch(part));
                          count.add(part);
                        }
                      }});
  }
}

int64_t ByteChecks::run(size_t threads, const Progress& progress) {
  ProgressCount count(progress, total_);
  std::atomic<size_t> next = 0;
  std::atomic<bool> stopped = false;
  in_threads(std::max<size_t>(std::min(threads, tasks_.size()), 1), [&] {
    for (size_t i = next++; i < tasks_.size() && !stopped; i = next++) {
      const Task& task = tasks_[i];
      try {
        task.work(*storage_.open(task.path), count);
      } catch (const std::runtime_error& error) {
        unreadable(task.name, {}, error);
      } catch (...) {
        stopped = true;  // the progress callback wants it to end
        throw;
      }
    }
  });
  tasks_.clear();
  return count.done();
}

}  // namespace sherd::stored
