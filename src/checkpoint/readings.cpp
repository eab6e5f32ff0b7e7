#include "checkpoint/readings.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <tuple>

#include "checkpoint/listed.h"
#include "checkpoint/read_tensor.h"
#include "stored/as_damage.h"

namespace sherd::detail {
namespace {

// Enough for all threads, and for blocks that tensors share to be read once.
constexpr int64_t kReadAtOnce = int64_t{64} << 20;
// What a disk is asked for while ranks agree that they are going to read.
constexpr int64_t kLittle = int64_t{16} << 20;
// Between items that are asked for as one.
constexpr int64_t kGap = int64_t{64} << 10;
constexpr size_t kMostNames = 10;

// Bytes [begin, end) of a file, from the first element of a part to its last one.
struct Extent {
  int64_t begin;
  int64_t end;
  bool dense = true;  // every block there has some of them
};
Extent extent_of(const stored::StoredElements& chunk, const Box& part) {
  const int64_t element = size_of(chunk.dtype);
  int64_t first = 0;
  int64_t extent = 1;
  bool dense = true;
  for (size_t d = part.size.size(); d-- > 0;) {
    first += part.offset[d] * chunk.strides[d];
    if (part.size[d] == 1) continue;
    dense = dense && (chunk.strides[d] - extent) * element < format::kBlock;
    extent += (part.size[d] - 1) * chunk.strides[d];
  }
  const int64_t begin = chunk.offset + first * element;
  return {begin, begin + extent * element, dense};
}

int64_t block_of(int64_t byte) { return byte / format::kBlock; }

// What tells whether two tensors are the same elements in the same memory.
using Memory = std::tuple<const void*, Dims, Dims, at::ScalarType>;
Memory memory_of(const at::Tensor& tensor) {
  const void* begin = tensor.has_storage() ? tensor.data_ptr() : tensor.unsafeGetTensorImpl();
  return {begin, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

// Whether the head of the item is read with its elements: without digests as one range more, else where the block
// that it is in is read for them anyway.
bool has_head_beside(const Reading& reading) {
  const stored::ExpectedElements& expected = *reading.expected;
  return goes_straight(expected.elements, reading.into) &&
         (!expected.elements.file->has_digests() ||
          block_of(extent_of(expected.elements, reading.part).begin) == block_of(expected.head_offset));
}

// Readings of one chunk.
struct Chunk {
  std::span<const Reading> readings;
  std::string reader;  // which errors name, as long as anything is wanted
  stored::StoredElements elements = {};
  std::string head = {};                    // as it was read, where the elements are only expected
  std::vector<stored::LaterCrc> crcs = {};  // one for each reading

  void want() {
    crcs.assign(readings.size(), {});
    for (size_t i = 0; i < readings.size(); ++i) {
      const Reading& reading = readings[i];
      read_tensor(elements, reading.part, reading.into, reading.at, reader, crcs[i]);
    }
    if (!elements.decoded) return;
    elements.file->read_wanted();
    check();
    elements = {};  // it takes memory
  }
  bool is_as_expected() const { return head.empty() || head == *readings.front().expected->head; }
  void check() const {
    for (const stored::LaterCrc& crc : crcs) crc.check(elements, reader);
  }
};

}  // namespace

// Tensors of a state may be one in memory, and several in the checkpoint. Threads would fill it in any order: the
// last one of the state counts, as if they were read one after the other.
void Readings::keep_last_of_tied() {
  std::map<Memory, const format::MetadataEntry*> last;
  for (const Reading& reading : readings_) last[memory_of(reading.into)] = reading.entry;
  std::erase_if(readings_, [&](const Reading& reading) { return last.at(memory_of(reading.into)) != reading.entry; });
}

void Readings::find() {
  keep_last_of_tied();
  for (const Reading& reading : readings_) checkpoint_.check_file(reading.place(), reading.entry->name);
  std::stable_sort(readings_.begin(), readings_.end(), [](const Reading& a, const Reading& b) {
    const format::Place& x = a.place();
    const format::Place& y = b.place();
    return std::pair(x.file, x.offset) < std::pair(y.file, y.offset);
  });
  for (Reading& reading : readings_) {
    reading.expected = checkpoint_.expected(reading.tensor(), reading.chunk);
    // Heads that are read alone lie far apart: a disk is asked for all of them before the first has come.
    if (reading.expected && !has_head_beside(reading)) {
      reading.expected->elements.file->expect(reading.expected->head_offset,
                                              static_cast<int64_t>(reading.expected->head->size()));
    }
  }
  expect_little();
}

// A disk brings what is read while the ranks wait for each other, where it is little: much is not brought faster by
// asking for some of it.
void Readings::expect_little() {
  int64_t bytes = 0;
  for (const Reading& reading : readings_) bytes += reading.place().length;
  if (bytes > kLittle) return;
  for (size_t i = 0; i < readings_.size();) {
    const format::Place& first = readings_[i].place();
    int64_t end = first.offset;
    for (; i < readings_.size(); ++i) {
      const format::Place& next = readings_[i].place();
      if (next.file != first.file || next.offset > end + kGap) break;
      end = std::max(end, next.offset + next.length);
    }
    checkpoint_.expect(first.file, first.offset, end - first.offset);
  }
}

// Readings as they lie in the files.
void Readings::read_some(std::span<const Reading> readings) {
  std::deque<Chunk> chunks;
  const auto locate = [&](Chunk& chunk) {
    const Reading& first = chunk.readings.front();
    chunk.elements = checkpoint_.locate(first.tensor(), first.chunk, chunk.reader);
  };
  const auto read_wanted = [&] {
    std::vector<stored::BlockFile*> files;  // ascending
    for (const Chunk& chunk : chunks) {
      stored::BlockFile* const file = chunk.elements.file;
      if (file != nullptr && (files.empty() || files.back() != file)) files.push_back(file);
    }
    for (stored::BlockFile* file : files) file->expect_wanted();
    for (stored::BlockFile* file : files) file->read_wanted();
  };
  for (size_t i = 0; i < readings.size();) {
    size_t end = i + 1;
    const auto same = [&](const Reading& other) {
      return other.entry == readings[i].entry && other.chunk == readings[i].chunk;
    };
    while (end < readings.size() && same(readings[end])) ++end;
    Chunk& chunk =
        chunks.emplace_back(Chunk{readings.subspan(i, end - i), fmt::format("tensor {}", readings[i].entry->name)});
    const Reading& first = chunk.readings.front();
    if (first.expected && has_head_beside(first)) {
      chunk.elements = first.expected->elements;
      chunk.head.resize(first.expected->head->size());
      chunk.elements.file->want({first.expected->head_offset, static_cast<int64_t>(chunk.head.size()),
                                 reinterpret_cast<std::byte*>(chunk.head.data())},
                                chunk.reader);
    } else {
      locate(chunk);
    }
    chunk.want();
    i = end;
  }
  read_wanted();
  // What is not as expected is read again from where it is.
  std::vector<Chunk*> others;
  for (Chunk& chunk : chunks) {
    if (chunk.is_as_expected()) {
      if (chunk.elements.file != nullptr) chunk.check();
      continue;
    }
    locate(chunk);
    chunk.want();
    others.push_back(&chunk);
  }
  if (others.empty()) return;
  read_wanted();
  for (const Chunk* chunk : others) {
    if (chunk->elements.file != nullptr) chunk->check();
  }
}

void Readings::read(const std::function<void(const CheckpointProgress&)>& progress) {
  int64_t total = 0;
  for (const Reading& reading : readings_) total += reading.bytes();
  int64_t done = 0;
  for (std::span<const Reading> rest = readings_; !rest.empty();) {
    size_t count = 0;
    int64_t bytes = 0;
    // Blocks that ranks share come file by file.
    const auto together = [&](const Reading& reading) {
      return !shares_blocks_ || reading.place().file == rest[0].place().file;
    };
    while (count < rest.size() && bytes < kReadAtOnce && together(rest[count])) bytes += rest[count++].bytes();
    stored::as_damage([&] { read_some(rest.first(count)); });
    rest = rest.subspan(count);
    done += bytes;
    if (progress) progress({done, total});
  }
}

void Readings::share_blocks(const std::vector<std::string>& offers, size_t rank) {
  const auto read = [this](int32_t file, int64_t block, std::span<std::byte> into) {
    try {
      checkpoint_.blocks(file)->read_block(block, into, "what several ranks want");
    } catch (const std::runtime_error&) {  // once more, with the names of what lies there
      checkpoint_.blocks(file)->read_block(block, into, names_in(file, block));
    }
  };
  const auto expect = [this](int32_t file, int64_t block) { checkpoint_.blocks(file)->expect_block(block); };
  const std::vector<int32_t> files = shared_.join(offers, rank, at::get_num_threads(), {read, expect});
  for (const int32_t file : files) checkpoint_.blocks(file)->take_from(shared_, file);
  shares_blocks_ = !files.empty();
}

// "tensor a, b": what lies in a block of a file.
std::string Readings::names_in(int32_t file, int64_t block) const {
  std::vector<std::string> names;
  for (const format::MetadataEntry& entry : checkpoint_.metadata().entries) {
    const auto* tensor = std::get_if<format::TensorEntry>(&entry.content);
    const auto is_there = [&](const format::Place& place) {
      return place.file == file && block_of(place.offset) <= block &&
             block <= block_of(place.offset + place.length - 1);
    };
    if (tensor != nullptr && std::ranges::any_of(tensor->places, is_there)) names.push_back(entry.name);
  }
  return "tensor " + listed(names, kMostNames);
}

// Ascending, without overlaps; of small items none, which are read beside each other.
std::vector<BlockRange> Readings::wanted_blocks() const {
  std::vector<BlockRange> ranges;
  for (const Reading& reading : readings_) {
    if (!reading.expected || !reading.expected->elements.file->has_digests()) continue;
    const Extent bytes = extent_of(reading.expected->elements, reading.part);
    if (!bytes.dense) continue;
    BlockRange range{reading.place().file, block_of(bytes.begin), block_of(bytes.end - 1) + 1};
    if (!ranges.empty() && ranges.back().file == range.file) range.begin = std::max(range.begin, ranges.back().end);
    if (range.begin >= range.end) continue;
    if (!ranges.empty() && ranges.back().file == range.file && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace sherd::detail
