#include "comm/byte_runs.h"

#include <algorithm>
#include <array>

namespace sherd::detail {

ByteRuns ByteRuns::to_read(const at::Tensor& tensor) {
  ByteRuns runs;
  runs.add(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor, nullptr);
  return runs;
}

ByteRuns ByteRuns::to_write(const at::Tensor& tensor) {
  ByteRuns runs;
  runs.add(static_cast<const std::byte*>(tensor.mutable_data_ptr()), tensor, nullptr);
  return runs;
}

void ByteRuns::add_to_read(const at::Tensor& tensor, const std::vector<Rows>& rows) {
  kept_.push_back(tensor);
  add(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor, &rows);
}

void ByteRuns::add_to_write(const at::Tensor& tensor, const std::vector<Rows>& rows) {
  kept_.push_back(tensor);
  add(static_cast<const std::byte*>(tensor.mutable_data_ptr()), tensor, &rows);
}

void ByteRuns::add(const std::byte* data, const at::Tensor& tensor, const std::vector<Rows>* rows) {
  Piece piece{.data = const_cast<std::byte*>(data)};
  const auto element = static_cast<int64_t>(tensor.element_size());
  int64_t bytes = element;  // of all
  int64_t whole = element;  // of the innermost dims, as long as they lie in one piece
  const auto in_one_piece = [&] { return piece.inner.empty() && piece.outer.empty(); };
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    RunList runs;
    int64_t count = 0;
    if (rows == nullptr) {
      runs.push_back({0, tensor.size(d)});
      count = tensor.size(d);
    } else {
      for (const Run& run : (*rows)[static_cast<size_t>(d)]) {
        if (run.size > 0) runs.push_back(run);
        count += run.size;
      }
    }
    if (count == 0) return;
    bytes *= count;
    const int64_t step = tensor.stride(d) * element;
    if (count == 1) {
      piece.data += runs[0].offset * step;
      continue;
    }
    const bool all = runs.size() == 1 && runs[0].size == tensor.size(d);
    if (in_one_piece() && step == whole) {
      if (all) {
        whole *= count;
      } else {
        for (Run& run : runs) piece.inner.push_back({run.offset * whole, run.size * whole});
      }
      continue;
    }
    // Two dims that one step goes through are one.
    if (!piece.outer.empty()) {
      Piece::Dim& inside = piece.outer.back();
      const Run& first = inside.rows[0];
      if (inside.rows.size() == 1 && first.offset == 0 && first.size * inside.step == step) {
        const int64_t size = first.size;
        for (Run& run : runs) run = {run.offset * size, run.size * size};
        inside.rows = std::move(runs);
        continue;
      }
    }
    piece.outer.push_back({std::move(runs), step});
  }
  if (piece.inner.empty()) piece.inner.push_back({0, whole});
  std::reverse(piece.outer.begin(), piece.outer.end());
  size_ += static_cast<size_t>(bytes);
  pieces_.push_back(std::move(piece));
}

void RunCursor::enter_piece() {
  const ByteRuns::Piece& piece = runs_->pieces_[piece_];
  outer_.assign(piece.outer.size(), Place());
  inner_ = 0;
  byte_ = 0;
  entered_ = true;
  row_ = piece.data;
  for (const auto& dim : piece.outer) row_ += dim.rows[0].offset * dim.step;
}

// Goes on by rows of the innermost of the outer dims, within a run of it.
void RunCursor::go_rows(int64_t count) {
  const ByteRuns::Piece& piece = runs_->pieces_[piece_];
  for (size_t d = outer_.size(); d-- > 0; count = 1) {
    const ByteRuns::Piece::Dim& dim = piece.outer[d];
    Place& place = outer_[d];
    place.row += count;
    row_ += count * dim.step;
    if (place.row < dim.rows[place.run].size) return;
    const int64_t end = dim.rows[place.run].offset + dim.rows[place.run].size;
    place.row = 0;
    const bool more = ++place.run < dim.rows.size();
    if (!more) place.run = 0;
    row_ += (dim.rows[place.run].offset - end) * dim.step;
    if (more) return;
  }
  ++piece_;
  entered_ = false;
}

// At most `most` bytes, which are left; at least one.
RunCursor::Stretch RunCursor::peek(size_t most) {
  if (!entered_) enter_piece();
  const ByteRuns::Piece& piece = runs_->pieces_[piece_];
  const Run& inner = piece.inner[inner_];
  const auto run = static_cast<size_t>(inner.size);
  std::byte* data = row_ + inner.offset + byte_;
  if (byte_ > 0 || most < run || piece.inner.size() > 1 || piece.outer.empty()) {
    return {.data = data, .run = std::min(most, run - byte_), .count = 1};
  }
  const auto& dim = piece.outer.back();
  const int64_t rows = dim.rows[outer_.back().run].size - outer_.back().row;
  return {.data = data, .step = dim.step, .run = run, .count = std::min(static_cast<size_t>(rows), most / run)};
}

void RunCursor::skip(const Stretch& stretch) {
  passed_ += stretch.run * stretch.count;
  if (stretch.count > 1) return go_rows(static_cast<int64_t>(stretch.count));
  const ByteRuns::Piece& piece = runs_->pieces_[piece_];
  byte_ += stretch.run;
  if (byte_ < static_cast<size_t>(piece.inner[inner_].size)) return;
  byte_ = 0;
  if (++inner_ < piece.inner.size()) return;
  inner_ = 0;
  go_rows(1);
}

RunCursor::Stretch RunCursor::next(size_t most) {
  const Stretch stretch = peek(most);
  skip(stretch);
  return stretch;
}

void RunCursor::pass(size_t bytes) {
  while (bytes > 0) {
    const Stretch s = next(bytes);
    bytes -= s.run * s.count;
  }
}

void RunCursor::get(std::byte* to, size_t bytes, CopyTo where) {
  while (bytes > 0) {
    const Stretch s = next(bytes);
    const auto step = static_cast<ptrdiff_t>(s.run);
    copy_runs({.to = to, .to_step = step, .from = s.data, .from_step = s.step, .run = s.run, .count = s.count}, where);
    to += s.run * s.count;
    bytes -= s.run * s.count;
  }
}

void RunCursor::put(const std::byte* from, size_t bytes, CopyTo where) {
  while (bytes > 0) {
    const Stretch s = next(bytes);
    const auto step = static_cast<ptrdiff_t>(s.run);
    copy_runs({.to = s.data, .to_step = s.step, .from = from, .from_step = step, .run = s.run, .count = s.count},
              where);
    from += s.run * s.count;
    bytes -= s.run * s.count;
  }
}

void copy_between(RunCursor& to, RunCursor& from, size_t bytes, CopyTo where) {
  constexpr size_t kLong = 1024;
  constexpr size_t kBuffer = size_t{16} * 1024;
  while (bytes > 0) {
    RunCursor::Stretch source = from.peek(bytes);
    if (source.count == 1 || source.run >= kLong) {
      source.count = 1;
      const RunCursor::Stretch target = to.peek(source.run);
      if (target.data == source.data && target.run == source.run) {
        to.skip(target);
      } else {
        to.put(source.data, source.run, where);
      }
      from.skip(source);
      bytes -= source.run;
      continue;
    }
    // Short runs here, and whatever runs there: through memory that the core has at hand.
    alignas(64) std::array<std::byte, kBuffer> buffer;
    const size_t now = std::min(bytes, kBuffer);
    from.get(buffer.data(), now, CopyTo::cache);
    to.put(buffer.data(), now, where);
    bytes -= now;
  }
}

void copy_all(const ByteRuns& to, const ByteRuns& from, CopyTo where) {
  RunCursor target(to);
  RunCursor source(from);
  copy_between(target, source, from.size(), where);
}

}  // namespace sherd::detail
