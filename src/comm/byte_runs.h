#pragma once
// Elements that do not lie in one piece, seen as one row of bytes: what one rank gives another, or takes from it, where
// it lies in their tensors.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/copy.h"
#include "sherd/layout.h"

namespace sherd::detail {

class ByteRuns {
 public:
  using Rows = std::vector<Run>;

  ByteRuns() = default;
  /// The elements of a CPU tensor that outlives this, in the order of its dims.
  static ByteRuns to_read(const at::Tensor& tensor);
  static ByteRuns to_write(const at::Tensor& tensor);

  /// Puts more elements behind those that are there: the rows `rows[d]` of each dim of a tensor, in the order of the
  /// dims. The tensor stays alive with this.
  void add_to_read(const at::Tensor& tensor, const std::vector<Rows>& rows);
  void add_to_write(const at::Tensor& tensor, const std::vector<Rows>& rows);

  size_t size() const { return size_; }  // in bytes

 private:
  friend class RunCursor;
  using RunList = c10::SmallVector<Run, 1>;
  // A product of rows of each dim; the innermost dims that are whole are one.
  struct Piece {
    struct Dim {
      RunList rows;
      int64_t step = 0;  // in bytes
    };
    std::byte* data = nullptr;
    c10::SmallVector<Dim, 3> outer = {};  // outermost first
    RunList inner = {};                   // in bytes
  };
  void add(const std::byte* data, const at::Tensor& tensor, const std::vector<Rows>* rows);

  c10::SmallVector<Piece, 1> pieces_;
  std::vector<at::Tensor> kept_;
  size_t size_ = 0;
};

/// Goes along the bytes from their beginning. The ByteRuns must outlive it.
class RunCursor {
 public:
  explicit RunCursor(const ByteRuns& runs) : runs_(&runs) {}

  /// Copies the next `bytes` out to memory in one piece, or in from there.
  void get(std::byte* to, size_t bytes, CopyTo where);
  void put(const std::byte* from, size_t bytes, CopyTo where);

  /// Goes on by `bytes` without a copy.
  void pass(size_t bytes);

  size_t left() const { return runs_->size() - passed_; }

 private:
  friend void copy_between(RunCursor& to, RunCursor& from, size_t bytes, CopyTo where);
  // Equal runs one after the other: as many as lie `step` apart.
  struct Stretch {
    std::byte* data = nullptr;
    ptrdiff_t step = 0;
    size_t run = 0;
    size_t count = 0;
  };
  struct Place {
    size_t run = 0;
    int64_t row = 0;  // in the run
  };
  Stretch peek(size_t most);
  Stretch next(size_t most);
  void skip(const Stretch& stretch);
  void enter_piece();
  void go_rows(int64_t count);

  const ByteRuns* runs_;
  size_t passed_ = 0;
  size_t piece_ = 0;
  bool entered_ = false;                   // the rest says where in the piece
  c10::SmallVector<Place, 3> outer_ = {};  // of each outer dim
  std::byte* row_ = nullptr;               // where they lead to
  size_t inner_ = 0;                       // run
  size_t byte_ = 0;                        // in the run
};

/// Copies the next `bytes` from one to the other. What is the same memory on both sides may stay as it is.
void copy_between(RunCursor& to, RunCursor& from, size_t bytes, CopyTo where);
/// Copies all of them; both sides have equally many bytes.
void copy_all(const ByteRuns& to, const ByteRuns& from, CopyTo where);

}  // namespace sherd::detail
