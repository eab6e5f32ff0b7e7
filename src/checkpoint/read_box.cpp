#include "checkpoint/read_box.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "checkpoint/dtypes.h"
#include "sherd/error.h"

namespace sherd::detail {
namespace {

constexpr int64_t kStaging = int64_t{16} << 20;
// Shorter runs are read along with what lies between them, and torch takes them apart.
constexpr int64_t kShortRun = 256;
constexpr size_t kRunsAtOnce = size_t{1} << 14;

bool is_row_major(const Dims& sizes, const Dims& strides) {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

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
        ErrorText("load", "a file is damaged: its bytes are not those that were saved")
            .fact("file", chunk_.file->path())
            .fact("bytes", fmt::format("{} to {}", chunk_.offset, chunk_.offset + bytes))
            .fact("CRC saved", fmt::format("{:08x}", *chunk_.crc))
            .fact("CRC found", fmt::format("{:08x}", sum_))
            .fact("reading", reader)
            .help("another checkpoint, or LoadOptions{.verify = false} to take the bytes as they are"));
  }

 private:
  const StoredElements& chunk_;
  bool wanted_;
  uint32_t sum_ = 0;
};

class BoxReader {
 public:
  BoxReader(const StoredElements& chunk, const Box& part, bool verify, const std::string& reader)
      : chunk_(chunk),
        size_(size_of(chunk.dtype)),
        reader_(reader),
        crc_(chunk, verify && chunk.crc && !chunk.file->has_digests() && part.size == chunk.sizes &&
                        is_row_major(chunk.sizes, chunk.strides)) {
    first_ = chunk.offset;
    for (size_t d = 0; d < part.offset.size(); ++d) first_ += part.offset[d] * chunk.strides[d] * size_;
  }

  void read(const Dims& sizes, const at::Tensor& into) {
    if (numel(sizes) == 0) return;
    const bool plain =
        into.is_cpu() && into.scalar_type() == to_torch(chunk_.dtype) && !into.is_conj() && !into.is_neg();
    const Dims strides = into.strides().vec();
    if (plain && crc_.wanted() && into.is_contiguous()) {
      read_summed(numel(sizes) * size_, static_cast<std::byte*>(into.data_ptr()));
    } else if (plain && !crc_.wanted() && is_ascending(sizes) && run_of(sizes, strides).bytes >= kShortRun) {
      read_runs(sizes, strides, static_cast<std::byte*>(into.data_ptr()));
    } else {
      read_staged(first_, sizes, into);
    }
    crc_.check(reader_);
  }

 private:
  struct Inner {
    size_t dims;    // that a run takes in, counted from the last
    int64_t bytes;  // of a run
  };
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

  void read_runs(const Dims& sizes, const Dims& strides, std::byte* into) {
    const Inner inner = run_of(sizes, strides);
    const size_t outer = sizes.size() - inner.dims;
    Dims at(outer, 0);
    std::vector<FileRun> runs;
    bool more = true;
    while (more) {
      FileRun run{first_, inner.bytes, into};
      for (size_t d = 0; d < outer; ++d) {
        run.offset += at[d] * chunk_.strides[d] * size_;
        run.into += at[d] * strides[d] * size_;
      }
      runs.push_back(run);
      more = false;
      for (size_t d = outer; d-- > 0;) {
        if (++at[d] < sizes[d]) {
          more = true;
          break;
        }
        at[d] = 0;
      }
      if (runs.size() < kRunsAtOnce && more) continue;
      chunk_.file->read(runs, reader_);
      runs.clear();
    }
  }

  // The stretch of the file from the first element to the last is read, piece by piece of the dim with the longest
  // stride.
  void read_staged(int64_t first, const Dims& sizes, const at::Tensor& into) {
    int64_t stretch = 1;
    size_t longest = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      stretch += (sizes[d] - 1) * chunk_.strides[d];
      const bool longer = sizes[longest] == 1 || chunk_.strides[d] > chunk_.strides[longest];
      if (sizes[d] > 1 && longer) longest = d;
    }
    if (stretch * size_ > kStaging && !sizes.empty() && sizes[longest] > 1) {
      const int64_t rows = std::max<int64_t>(kStaging / (chunk_.strides[longest] * size_), 1);
      for (int64_t row = 0; row < sizes[longest]; row += rows) {
        Dims part = sizes;
        part[longest] = std::min(rows, sizes[longest] - row);
        read_staged(first + row * chunk_.strides[longest] * size_, part,
                    into.narrow(static_cast<int64_t>(longest), row, part[longest]));
      }
      return;
    }
    at::Tensor bytes = at::empty({stretch * size_}, at::TensorOptions(c10::kByte));
    const FileRun run{first, stretch * size_, static_cast<std::byte*>(bytes.data_ptr())};
    chunk_.file->read({&run, 1}, reader_);
    crc_.add({run.into, static_cast<size_t>(run.size)});
    const at::Tensor elements =
        at::from_blob(bytes.data_ptr(), sizes, chunk_.strides, at::TensorOptions(to_torch(chunk_.dtype)));
    into.copy_(elements);
  }

  const StoredElements& chunk_;
  int64_t size_;
  const std::string& reader_;
  Crc crc_;
  int64_t first_ = 0;
};

}  // namespace

void read_box(const StoredElements& chunk, const Box& part, const at::Tensor& into, bool verify,
              const std::string& reader) {
  BoxReader(chunk, part, verify, reader).read(part.size, into);
}

}  // namespace sherd::detail
