#include "stored/read_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "sherd/error.h"
#include "stored/copy_elements.h"

namespace sherd::stored {

void compare_crc(const StoredElements& chunk, uint32_t saved, uint32_t found, const std::string& reader) {
  if (found == saved) return;
  const int64_t bytes = numel(chunk.sizes) * size_of(chunk.dtype);
  throw std::runtime_error(
      ErrorText(chunk.file->options().operation, "a file is damaged: its bytes are not those that were saved")
          .fact("file", chunk.file->path())
          .fact("bytes", fmt::format("{} to {}", chunk.offset, chunk.offset + bytes))
          .fact("CRC saved", fmt::format("{:08x}", saved))
          .fact("CRC found", fmt::format("{:08x}", found))
          .fact("reading", reader)
          .help(take_as_is(chunk.file->options())));
}

namespace {

constexpr int64_t kStaging = int64_t{16} << 20;
// Shorter runs are read along with what lies between them, and taken apart in memory.
constexpr int64_t kShortRun = 256;
constexpr size_t kRunsAtOnce = size_t{1} << 14;

class BoxReader {
 public:
  BoxReader(const StoredElements& chunk, const Box& part, const std::string& reader)
      : chunk_(chunk),
        size_(size_of(chunk.dtype)),
        reader_(reader),
        summed_((chunk.crc || chunk.crc_behind) && chunk.file->options().verify && !chunk.file->has_digests() &&
                part.size == chunk.sizes && is_dense(chunk.sizes, chunk.strides)),
        row_major_(is_row_major(chunk.sizes, chunk.strides)) {
    first_ = chunk.offset;
    for (size_t d = 0; d < part.offset.size(); ++d) first_ += part.offset[d] * chunk.strides[d] * size_;
  }

  void read(const Dims& sizes, std::byte* into, const Dims& strides) {
    if (numel(sizes) == 0) return;
    if (summed_ && row_major_ && is_row_major(sizes, strides)) {
      read_summed(numel(sizes) * size_, into);
      check();
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

  void want(const Dims& sizes, std::byte* into, const Dims& strides, LaterCrc& crc) {
    const int64_t bytes = numel(sizes) * size_;
    if (bytes > 0 && summed_ && row_major_ && is_row_major(sizes, strides)) {
      crc.counted = true;
      chunk_.file->want({first_, bytes, into}, reader_, &crc.sum);
      if (!chunk_.crc) {
        chunk_.file->want({first_ + bytes, sizeof(BehindElements), reinterpret_cast<std::byte*>(&crc.behind)}, reader_);
      }
    } else if (bytes > 0 && is_by_runs(sizes, strides)) {
      for_each_run(sizes, strides, into, [&](const FileRun& run) { chunk_.file->want(run, reader_); });
    } else {
      read(sizes, into, strides);
    }
  }

  void read_parts(const Dims& sizes, const std::function<void(const ReadPart&)>& take) {
    if (numel(sizes) == 0) return;
    read_staged(Dims(sizes.size(), 0), sizes, take);
    check();
  }

 private:
  struct Inner {
    size_t dims;    // that a run takes in, counted from the last
    int64_t bytes;  // of a run
  };
  bool is_by_runs(const Dims& sizes, const Dims& strides) const {
    return !summed_ && is_ascending(sizes) && run_of(sizes, strides).bytes >= kShortRun;
  }

  void check() const {
    if (!summed_) return;
    const auto saved = chunk_.crc ? chunk_.crc : crc_behind(chunk_, reader_);
    if (saved) compare_crc(chunk_, *saved, sum_, reader_);
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
      sum_ = format::crc32({run.into, static_cast<size_t>(run.size)}, sum_);
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
  // stride: where they are dense, each piece begins where the one before ends.
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
    if (summed_) sum_ = format::crc32(staging_, sum_);
    take({staging_.data(), at, sizes, chunk_.strides});
  }

  const StoredElements& chunk_;
  int64_t size_;
  const std::string& reader_;
  bool summed_;     // the CRC of all elements, from the first to the last
  bool row_major_;  // they lie in this order
  uint32_t sum_ = 0;
  int64_t first_ = 0;  // in bytes, of the part's first element
  std::vector<std::byte> staging_;
};

}  // namespace

void read_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader) {
  BoxReader(chunk, part, reader).read(part.size, into, strides);
}

void want_box(const StoredElements& chunk, const Box& part, std::byte* into, const Dims& strides,
              const std::string& reader, LaterCrc& crc) {
  BoxReader(chunk, part, reader).want(part.size, into, strides, crc);
}

std::optional<uint32_t> BehindElements::found() const {
  return std::memcmp(signature.data(), "PK\7\10", signature.size()) == 0 ? std::optional(crc) : std::nullopt;
}

void LaterCrc::check(const StoredElements& chunk, const std::string& reader) const {
  const auto saved = chunk.crc ? chunk.crc : behind.found();
  if (counted && saved) compare_crc(chunk, *saved, sum, reader);
}

std::optional<uint32_t> crc_behind(const StoredElements& chunk, const std::string& reader) {
  BehindElements behind;
  const int64_t end = chunk.offset + numel(chunk.sizes) * size_of(chunk.dtype);
  chunk.file->read_ahead({end, sizeof(behind), reinterpret_cast<std::byte*>(&behind)}, reader);
  return behind.found();
}

void read_box(const StoredElements& chunk, const Box& part, const std::function<void(const ReadPart&)>& take,
              const std::string& reader) {
  BoxReader(chunk, part, reader).read_parts(part.size, take);
}

}  // namespace sherd::stored
