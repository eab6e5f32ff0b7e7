#include "stored/read_elements.h"

#include <fmt/format.h>

#include <algorithm>

#include "sherd/damage.h"
#include "sherd/error.h"
#include "stored/as_damage.h"
#include "stored/copy_elements.h"

namespace sherd::stored {
namespace {

class BoxesOfRange {
 public:
  BoxesOfRange(const Dims& sizes, const std::function<void(const Box&, int64_t)>& use)
      : use_(use), rows_(sizes.size() + 1, 1) {
    for (size_t d = sizes.size(); d-- > 0;) rows_[d] = rows_[d + 1] * sizes[d];
    box_.offset.assign(sizes.size(), 0);
    box_.size = sizes;
  }

  // Elements [first, end) of the row that the dims before `dim` are fixed at.
  void split(size_t dim, int64_t first, int64_t end) {
    if (first >= end) return;
    if (dim == box_.size.size() || (first == 0 && end == rows_[dim])) {
      use_(box_, at_);
      at_ += end - first;
      return;
    }
    const int64_t row = rows_[dim + 1];
    const Dims::value_type offset = box_.offset[dim];
    const Dims::value_type size = box_.size[dim];
    const auto part = [&](int64_t begin, int64_t count, int64_t from, int64_t to) {
      box_.offset[dim] = begin;
      box_.size[dim] = count;
      split(dim + 1, from, to);
    };
    const int64_t begin = first / row;
    const int64_t last = end / row;  // the first row that is not whole, or the end
    if (begin == last) {
      part(begin, 1, first % row, end % row);
    } else {
      const int64_t whole = first % row == 0 ? begin : begin + 1;
      if (whole > begin) part(begin, 1, first % row, row);
      if (last > whole) {
        box_.offset[dim] = whole;
        box_.size[dim] = last - whole;
        use_(box_, at_);
        at_ += (last - whole) * row;
      }
      part(last, 1, 0, end % row);
    }
    box_.offset[dim] = offset;
    box_.size[dim] = size;
  }

 private:
  const std::function<void(const Box&, int64_t)>& use_;
  std::vector<int64_t> rows_;  // elements of a row of the dim before
  Box box_;
  int64_t at_ = 0;
};

}  // namespace

void for_each_box(const Dims& sizes, int64_t first, int64_t end,
                  const std::function<void(const Box& box, int64_t at)>& use) {
  BoxesOfRange(sizes, use).split(0, first, end);
}

const StoredElements& ElementReader::locate(const format::MetadataEntry& entry, size_t chunk) {
  if (entry_ == &entry && chunk_ == chunk) return elements_;
  if (entry_ != &entry) reader_ = fmt::format("tensor {}", entry.name);
  entry_ = nullptr;
  const auto& tensor = std::get<format::TensorEntry>(entry.content);
  checkpoint_.check_file(tensor.places[chunk], reader_);
  elements_ = checkpoint_.locate(tensor, chunk, reader_);
  if (elements_.dtype != tensor.dtype) {
    throw DamagedCheckpoint(
        ErrorText(elements_.file->options().operation, "an item has another dtype than the metadata say")
            .fact("file", elements_.file->path())
            .fact("item", format::names_of(elements_.dtype).text)
            .fact("metadata", format::names_of(tensor.dtype).text)
            .fact("reading", reader_)
            .help("another checkpoint: this one is damaged"));
  }
  entry_ = &entry;
  chunk_ = chunk;
  return elements_;
}

std::optional<uint32_t> ElementReader::crc_of(const format::MetadataEntry& entry, const Box& box) const {
  if (entry_ != &entry || elements_.file->has_digests() || !elements_.file->options().verify) return std::nullopt;
  if (std::get<format::TensorEntry>(entry.content).box(chunk_) != box) return std::nullopt;
  return is_row_major(elements_.sizes, elements_.strides) ? elements_.crc : std::nullopt;
}

void ElementReader::check_crc(uint32_t found) const {
  as_damage([&] { compare_crc(elements_, *elements_.crc, found, reader_); });
}

void ElementReader::read(const format::MetadataEntry& entry, const Box& box, int64_t first, int64_t end,
                         std::byte* into) {
  const int64_t bytes = size_of(std::get<format::TensorEntry>(entry.content).dtype);
  for_each_box(box.size, first, end, [&](const Box& part, int64_t at) {
    Box whole = part;
    for (size_t d = 0; d < whole.offset.size(); ++d) whole.offset[d] += box.offset[d];
    read(entry, whole, into + at * bytes, row_major(part.size));
  });
}

void ElementReader::read(const format::MetadataEntry& entry, const Box& box, std::byte* into, const Dims& strides) {
  const auto& tensor = std::get<format::TensorEntry>(entry.content);
  const int64_t bytes = size_of(tensor.dtype);
  int64_t missing = numel(box);
  for (size_t chunk = 0; chunk < tensor.chunk_count() && missing > 0; ++chunk) {
    const auto offsets = tensor.offsets(chunk);
    const auto sizes = tensor.sizes(chunk);
    // Most of a large tensor's chunks have nothing in common with a small box.
    bool apart = false;
    for (size_t d = 0; d < offsets.size() && !apart; ++d) {
      apart = offsets[d] >= box.offset[d] + box.size[d] || box.offset[d] >= offsets[d] + sizes[d];
    }
    if (apart) continue;
    auto common = intersect(box, tensor.box(chunk));
    if (!common) continue;
    int64_t first = 0;
    for (size_t d = 0; d < offsets.size(); ++d) {
      first += (common->offset[d] - box.offset[d]) * strides[d];
      common->offset[d] -= offsets[d];
    }
    read_box(locate(entry, chunk), *common, into + first * bytes, strides, reader_);
    missing -= numel(*common);
  }
  if (missing == 0) return;
  throw DamagedCheckpoint(ErrorText("load", "the checkpoint has no data for a part of a tensor, or has it twice")
                              .fact("tensor", entry.name)
                              .fact("part", to_string(box))
                              .help("another checkpoint: this one is not complete"));
}

}  // namespace sherd::stored
