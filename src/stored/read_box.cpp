#include "stored/read_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"
#include "stored/copy_elements.h"

namespace sherd::stored {
namespace {

constexpr int64_t kStaging = int64_t{16} << 20;
// Shorter runs are read along with what lies between them, and taken apart in memory.
constexpr int64_t kShortRun = 256;
constexpr size_t kRunsAtOnce = size_t{1} << 14;

// Compares the sum of a chunk that goes by from its first byte to its last.
class Crc {
 public:
  explicit Crc(const StoredElements& chunk, bool wanted) : chunk_(chunk), wanted_(wanted) {}
  void add(std::span<const std::byte> bytes) {
    if (wanted_) sum_ = format::crc32(bytes, sum_);
  }
  bool wanted() const { return wanted_; }
  void check(const std::string& reader) const {
    if (!wanted_ || sum_ == *chunk_.crc) return;
    const int64_t bytes = numel(chunk_.sizes) * size_of(chunk_.dtype);
    throw std::runtime_error(
        ErrorText(chunk_.file->options().operation, "a file is damaged: its bytes are not those that were saved")
            .fact("file", chunk_.file->path())
            .fact("bytes", fmt::format("{} to {}", chunk_.offset, chunk_.offset + bytes))
            .fact("CRC saved", fmt::format("{:08x}", *chunk_.crc))
            .fact("CRC found", fmt::format("{:08x}", sum_))
            .fact("reading", reader)
            .help(take_as_is(chunk_.file->options())));
  }

 private:
  const StoredElements& chunk_;
  bool wanted_;
  uint32_t sum_ = 0;
};

class BoxReader {
 public:
  BoxReader(const StoredElements& chunk, const Box& part, const std::string& reader)
      : chunk_(chunk),
        size_(size_of(chunk.dtype)),
        reader_(reader),
        crc_(chunk, chunk.file->options().verify && chunk.crc && !chunk.file->has_digests() &&
                        part.size == chunk.sizes && is_row_major(chunk.sizes, chunk.strides)) {
    first_ = chunk.offset;
    for (size_t d = 0; d < part.offset.size(); ++d) first_ += part.offset[d] * chunk.strides[d] * size_;
  }

  void read(const Dims& sizes, std::byte* into, const Dims& strides) {
    if (numel(sizes) == 0) return;
    if (crc_.wanted() && is_row_major(sizes, strides)) {
      read_summed(numel(sizes) * size_, into);
      crc_.check(reader_);
    } else if (is_by_runs(sizes, strides)) {
      read_runs(sizes, strides, into);
    } else {
      read_parts(sizes, [&](const ReadPart& part) {
        int64_t first = 0;
        for (size_t d = 0; d < strides.size(); ++d) first += part.at[d] * strides[d];
        copy_elements(part.sizes, size_, part.elements, part.strides, into + first * size_, strides);
      });
    }
  }

  void want(const Dims& sizes, std::byte* into, const Dims& strides) {
    if (numel(sizes) > 0 && chunk_.file->has_digests() && is_by_runs(sizes, strides)) {
      for_each_run(sizes, strides, into, [&](const FileRun& run) { chunk_.file->want(run, reader_); });
    } else {
      read(sizes, into, strides);
    }
  }

  void read_parts(const Dims& sizes, const std::function<void(const ReadPart&)>& take) {
    if (numel(sizes) == 0) return;
    read_staged(Dims(sizes.size(), 0), sizes, take);
    crc_.check(reader_);
  }

 private:
  struct Inner {
    size_t dims;    // that a run takes in, counted from the last
    int64_t bytes;  // of a run
  };
  bool is_by_runs(const Dims& sizes, const Dims& strides) const {
    return !crc_.wanted() && is_ascending(sizes) && run_of(sizes, strides).bytes >= kShortRun;
  }

  // The longest run of elements that lie together on both sides.
  Inner run_of(const Dims& sizes, const Dims& strides) const {
    int64_t run = 1;
    size_t dims = 0;
    for (size_t d = sizes.size(); d-- > 0; ++dims) {
      if (sizes[d] != 1 && (chunk_.strides[d] != run || strides[d] != run)) break;
      run *= sizes[d];
    }
    return {dims, run * size_};
  }

  // Whether counting through the dims, the last one fastest, goes forward in the file.
  bool is_ascending(const Dims& sizes) const {
    int64_t extent = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      if (sizes[d] == 1) continue;
      if (chunk_.strides[d] <= extent) return false;
      extent += (sizes[d] - 1) * chunk_.strides[d];
    }
    return true;
  }

  void read_summed(int64_t bytes, std::byte* into) {
    for (int64_t done = 0; done < bytes; done += format::kBlock) {
      const FileRun run{first_ + done, std::min(format::kBlock, bytes - done), into + done};
      chunk_.file->read({&run, 1}, reader_);
      crc_.add({run.into, static_cast<size_t>(run.size)});
    }
  }

  // Each run of elements that lie together on both sides, forward in the file.
  template <class Take>
  void for_each_run(const Dims& sizes, const Dims& strides, std::byte* into, const Take& take) const {
    const Inner inner = run_of(sizes, strides);
    const size_t outer = sizes.size() - inner.dims;
    Dims at(outer, 0);
    bool more = true;
    while (more) {
      FileRun run{first_, inner.bytes, into};
      for (size_t d = 0; d < outer; ++d) {
        run.offset += at[d] * chunk_.strides[d] * size_;
        run.into += at[d] * strides[d] * size_;
      }
      take(run);
      more = false;
      for (size_t d = outer; d-- > 0;) {
        if (++at[d] < sizes[d]) {
          more = true;
          break;
        }
        at[d] = 0;
      }
    }
  }

  void read_runs(const Dims& sizes, const Dims& strides, std::byte* into) {
    std::vector<FileRun> runs;
    for_each_run(sizes, strides, into, [&](const FileRun& run) {
      if (runs.size() == kRunsAtOnce) {
        chunk_.file->read(runs, reader_);
        runs.clear();
      }
      runs.push_back(run);
    });
    chunk_.file->read(runs, reader_);
  }

  // The stretch of the file from the first element to the last is read, piece by piece of the dim with the longest
  // stride.
  void read_staged(const Dims& at, const Dims& sizes, const std::function<void(const ReadPart&)>& take) {
    int64_t stretch = 1;
    size_t longest = 0;
    int64_t first = first_;
    for (size_t d = 0; d < sizes.size(); ++d) {
      stretch += (sizes[d] - 1) * chunk_.strides[d];
      first += at[d] * chunk_.strides[d] * size_;
      const bool longer = sizes[longest] == 1 || chunk_.strides[d] > chunk_.strides[longest];
      if (sizes[d] > 1 && longer) longest = d;
    }
    if (stretch * size_ > kStaging && !sizes.empty() && sizes[longest] > 1) {
      const int64_t rows = std::max<int64_t>(kStaging / (chunk_.strides[longest] * size_), 1);
      for (int64_t row = 0; row < sizes[longest]; row += rows) {
        Dims part = sizes;
        Dims start = at;
        start[longest] += row;
        part[longest] = std::min(rows, sizes[longest] - row);
        read_staged(start, part, take);
      }
      return;
    }
    staging_.resize(static_cast<size_t>(stretch * size_));
    const FileRun run{first, stretch * size_, staging_.data()};
    chunk_.file->read({&run, 1}, reader_);
    crc_.add(staging_);
    take({staging_.data(), at, sizes, chunk_.strides});
  }

  const StoredElements& chunk_;
  int64_t size_;
  const std::string& reader_;
  Crc crc_;
  int64_t first_ = 0;  // in bytes, of the part's first element
  std::vector<std::byte> staging_;
};

}  // namespace

void read_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader) {
  BoxReader(chunk, part, reader).read(part.size, into, strides);
}

void want_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader) {
  BoxReader(chunk, part, reader).want(part.size, into, strides);
}

void read_box(const StoredElements& chunk, const Box& part, const std::function<void(const ReadPart&)>& take,
              const std::string& reader) {
  BoxReader(chunk, part, reader).read_parts(part.size, take);
}

}  // namespace sherd::stored
