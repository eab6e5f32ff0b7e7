#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "format/numbers.h"
#include "format/saved.h"
#include "format/unfolded.h"
#include "sherd/inspect.h"
#include "storage/in_threads.h"
#include "stored/as_damage.h"
#include "stored/compare_elements.h"
#include "stored/open_known.h"
#include "stored/progress_count.h"
#include "stored/tensor_parts.h"

namespace sherd {
namespace {

using format::MetadataEntry;
using format::TensorEntry;

constexpr int64_t kTileBytes = int64_t{4} << 20;
// One thread more, with both metadata read again, for each so many bytes.
constexpr int64_t kPerThread = int64_t{64} << 20;

// Both checkpoints, open: each thread has its own, since files remember where they read last.
struct Pair {
  std::unique_ptr<stored::StoredCheckpoint> a;
  std::unique_ptr<stored::StoredCheckpoint> b;
};

// The places of an entry that both have.
struct Common {
  size_t a;
  size_t b;
  int64_t bytes;
};

class Diff {
 public:
  Diff(const std::string& path, const std::string& other, const DiffOptions& options)
      : path_(path),
        other_(other),
        options_(options),
        storage_(stored::storage_or_disk(options.storage)),
        other_storage_(stored::storage_or_disk(options.other_storage)) {}

  DiffResult run() {
    Pair pair = open();
    const std::vector<Common> tensors = match(pair);
    int64_t total = 0;
    for (const Common& common : tensors) total += common.bytes;
    result_.bytes = total;
    stored::ProgressCount count(options_.progress, total);
    std::vector<std::optional<TensorDifference>> found(tensors.size());
    std::atomic<size_t> next = 0;
    const auto work = [&](Pair& own) {
      for (size_t i = next++; i < tensors.size(); i = next++) found[i] = compare(own, tensors[i], count);
    };
    const size_t cores = options_.threads > 0 ? options_.threads : std::max(1U, std::thread::hardware_concurrency());
    const size_t threads = std::clamp<size_t>(static_cast<size_t>(total / kPerThread), 1, cores);
    std::atomic_flag first_taken;
    in_threads(threads, [&] {
      if (!first_taken.test_and_set()) return work(pair);
      Pair own = open();
      work(own);
    });
    for (auto& difference : found) {
      if (difference) result_.tensors.push_back(std::move(*difference));
    }
    return std::move(result_);
  }

 private:
  Pair open() const {
    const stored::OpenOptions how{
        .verify = options_.verify, .operation = options_.operation, .no_verify = "--no-verify"};
    return {stored::open_known(storage_, path_, how), stored::open_known(other_storage_, other_, how)};
  }

  std::map<std::string_view, size_t> names_of(const stored::StoredCheckpoint& checkpoint) const {
    std::map<std::string_view, size_t> names;
    const auto& entries = checkpoint.metadata().entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!options_.wanted || options_.wanted(entries[i].name)) names.emplace(entries[i].name, i);
    }
    return names;
  }

  // Tells what needs no elements, and returns the tensors that do.
  std::vector<Common> match(Pair& pair) {
    const auto ours = names_of(*pair.a);
    const auto theirs = names_of(*pair.b);
    std::vector<Common> tensors;
    for (const auto& [name, number] : theirs) {
      if (!ours.contains(name)) result_.only_there.emplace_back(name);
    }
    for (const auto& [name, number] : ours) {
      const auto other = theirs.find(name);
      if (other == theirs.end()) {
        result_.only_here.emplace_back(name);
        continue;
      }
      ++result_.compared;
      const MetadataEntry& a = pair.a->metadata().entries[number];
      const MetadataEntry& b = pair.b->metadata().entries[other->second];
      const auto* tensor = std::get_if<TensorEntry>(&a.content);
      const auto* other_tensor = std::get_if<TensorEntry>(&b.content);
      if (tensor == nullptr || other_tensor == nullptr) {
        compare_objects(pair, a, b);
      } else if (tensor->size == other_tensor->size) {
        tensors.push_back({number, other->second, numel(tensor->size) * size_of(tensor->dtype)});
      } else {
        result_.tensors.push_back(kinds_of(a, b));
      }
    }
    return tensors;
  }

  static TensorDifference kinds_of(const MetadataEntry& a, const MetadataEntry& b) {
    const auto& tensor = std::get<TensorEntry>(a.content);
    const auto& other = std::get<TensorEntry>(b.content);
    return {.name = a.name,
            .dtype = std::string(format::names_of(tensor.dtype).text),
            .other_dtype = std::string(format::names_of(other.dtype).text),
            .size = tensor.size,
            .other_size = other.size};
  }

  struct Object {
    std::string archive;
    format::Saved saved;
    std::string text;
  };
  Object object_of(stored::StoredCheckpoint& checkpoint, const MetadataEntry& entry) const {
    if (const auto* tensor = std::get_if<TensorEntry>(&entry.content)) {
      return {{}, {}, fmt::format("tensor {}{}", format::names_of(tensor->dtype).text, to_string(tensor->size))};
    }
    return stored::as_damage([&]() -> Object {
      Object object;
      object.archive = checkpoint.object(std::get<format::BytesEntry>(entry.content).place, "object " + entry.name);
      const format::MemorySource source(std::as_bytes(std::span(object.archive)));
      object.saved = format::read_saved(source, entry.name);
      format::check_unfolded(object.saved.value, options_.operation, entry.name);
      object.text = to_string(object.saved.value);
      return object;
    });
  }

  // Tensors inside of objects are equal where their bytes are: those have CRCs.
  static bool same_records(const format::Archive& a, const format::Archive& b) {
    const auto is_data = [](const format::Record& record) { return record.name.starts_with("data/"); };
    const auto count = [&](const format::Archive& archive) {
      return std::count_if(archive.records.begin(), archive.records.end(), is_data);
    };
    if (count(a) != count(b)) return false;
    return std::all_of(a.records.begin(), a.records.end(), [&](const format::Record& record) {
      if (!is_data(record)) return true;
      const format::Record* other = b.find(record.name);
      return other != nullptr && other->size == record.size && other->crc == record.crc;
    });
  }

  void compare_objects(Pair& pair, const MetadataEntry& a, const MetadataEntry& b) {
    Object ours = object_of(*pair.a, a);
    Object theirs = object_of(*pair.b, b);
    if (!ours.archive.empty() && !theirs.archive.empty()) {
      if (ours.archive == theirs.archive) return;
      if (ours.saved.value == theirs.saved.value && same_records(ours.saved.archive, theirs.saved.archive)) return;
    }
    result_.objects.push_back({a.name, std::move(ours.text), std::move(theirs.text)});
  }

  std::optional<TensorDifference> compare(Pair& pair, const Common& common, stored::ProgressCount& count) const {
    const MetadataEntry& a = pair.a->metadata().entries[common.a];
    const MetadataEntry& b = pair.b->metadata().entries[common.b];
    stored::TensorParts ours(*pair.a, a, options_.operation);
    stored::TensorParts theirs(*pair.b, b, options_.operation);
    TensorDifference difference = kinds_of(a, b);
    const format::DType dtype = ours.tensor().dtype, other_dtype = theirs.tensor().dtype;
    const Box whole{Dims(difference.size.size(), 0), difference.size};
    ours.check_covered(whole);
    theirs.check_covered(whole);
    stored::ElementDifferences elements;
    std::vector<std::byte> bytes, other_bytes;
    int64_t number = 0;
    const int64_t at_once = std::max<int64_t>(kTileBytes / std::max(size_of(dtype), size_of(other_dtype)), 1);
    if (numel(whole) == 0) return dtype == other_dtype ? std::nullopt : told(std::move(difference), elements);
    stored::for_each_tile(whole, at_once, [&](const Box& tile) {
      const int64_t tile_elements = numel(tile);
      bytes.resize(static_cast<size_t>(tile_elements * size_of(dtype)));
      other_bytes.resize(static_cast<size_t>(tile_elements * size_of(other_dtype)));
      ours.read(tile, bytes.data());
      theirs.read(tile, other_bytes.data());
      const bool none_before = elements.first < 0;
      compare_elements({dtype, bytes.data()}, {other_dtype, other_bytes.data()}, tile_elements, number,
                       {options_.absolute, options_.relative}, elements);
      if (none_before && elements.first >= 0) {
        const int64_t at = elements.first - number;
        difference.first_value = element_text(dtype, bytes.data() + at * size_of(dtype));
        difference.first_other_value = element_text(other_dtype, other_bytes.data() + at * size_of(other_dtype));
      }
      number += tile_elements;
      count.add(static_cast<int64_t>(bytes.size()));
    });
    if (elements.count == 0 && dtype == other_dtype) return std::nullopt;
    return told(std::move(difference), elements);
  }

  std::optional<TensorDifference> told(TensorDifference difference, const stored::ElementDifferences& elements) const {
    if (elements.count == 0 && options_.ignore_dtypes) return std::nullopt;
    difference.elements = elements.count;
    difference.nans = elements.nans;
    difference.max_absolute = elements.max_absolute;
    difference.max_relative = elements.max_relative;
    if (elements.first >= 0) {
      difference.first.assign(difference.size.size(), 0);
      int64_t rest = elements.first;
      for (size_t d = difference.size.size(); d-- > 0;) {
        difference.first[d] = rest % difference.size[d];
        rest /= difference.size[d];
      }
    }
    return difference;
  }

  const std::string& path_;
  const std::string& other_;
  const DiffOptions& options_;
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<Storage> other_storage_;
  DiffResult result_;
};

}  // namespace

DiffResult diff_checkpoints(const std::string& path, const std::string& other, const DiffOptions& options) {
  return Diff(path, other, options).run();
}

}  // namespace sherd
