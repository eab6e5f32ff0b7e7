#pragma once
// For the functions of along.cpp's table: reading a call, counting what is exchanged, answering.

#include <functional>
#include <string_view>

#include "plan/along.h"
#include "plan/pieces.h"
#include "plan/placement_lists.h"

namespace sherd::plan {

struct Asked {
  const OperatorCall& given;
  const rules::OpCall& call;
  const Mesh& mesh;
  std::string name;       // of the base operator, without "aten::"
  bool in_place = false;  // the first tensor is written

  /// Null where it is left out.
  const TensorText* tensor(size_t i) const {
    return i < given.operands.size() && given.operands[i] ? &*given.operands[i] : nullptr;
  }
  bool flag(std::string_view argument, bool otherwise) const { return call.integer(argument, otherwise ? 1 : 0) != 0; }
  double real(std::string_view argument, double otherwise) const;
  /// The dim of a tensor that an argument names, where the tensor is sharded along it.
  std::optional<int64_t> sharded(const TensorText& tensor, std::string_view argument, int64_t otherwise) const;
  /// The dims that an argument names, all where it names none; nothing where one is out of range.
  std::optional<Dims> dims(const TensorText& tensor, std::string_view argument) const;
  bool is_cut(const TensorText& tensor, int64_t dim) const;
  bool any_cut(const TensorText& tensor, const Dims& dims) const;
  bool cut_anywhere(const TensorText& tensor) const;
  std::optional<PieceRows> pieces(const TensorText& tensor, int64_t dim) const;
  /// The most that `received` is over the ranks of the mesh.
  int64_t most(const std::function<int64_t(const Dims& coordinate)>& received) const;
  /// "@dp@tp".
  std::string labels(const std::vector<int64_t>& axes) const;
};

/// An answer in the making. Operands stay as they are given until they are placed otherwise.
class Answer {
 public:
  Answer(const Asked& asked, std::string how);

  /// Operand i is brought to these placements first.
  TensorText placed(size_t i, const Placements& to);
  /// Its Partials are reduced first.
  TensorText reduced(size_t i);
  TensorText reduced(const TensorText& tensor);
  /// Made whole, so that every rank can read it.
  TensorText whole(const TensorText& tensor, const std::string& what);
  /// The first output of another operator, by its own rule; what that moves is counted.
  TensorText run(const std::string& op, const std::vector<TensorText>& operands,
                 std::vector<std::pair<std::string, ArgumentValue>> arguments = {});
  /// Every piece gives `rows` rows of a tensor with elements of so many bytes to all others.
  void gather(const TensorText& tensor, const PieceRows& pieces, int64_t rows, int64_t element_size,
              const std::string& what);
  void exchange(const std::string& text, int64_t bytes) { exchange(text, bytes, bytes); }
  void exchange(const std::string& text, int64_t bytes, int64_t least);

  Along done(const std::vector<TensorText>& outputs);

 private:
  const Asked& asked_;
  Along along_;
};

/// Half precision is worked on in float.
TensorText widened(TensorText tensor);
/// The tensor with another dtype.
TensorText as(TensorText tensor, std::string dtype);
Placements whole_on(const Mesh& mesh);
inline bool is_real(std::string_view dtype) { return has_fraction(dtype) && !dtype.starts_with('c'); }
inline bool is_complex(std::string_view dtype) { return dtype.starts_with('c'); }

using AlongFunction = std::optional<Along> (*)(const Asked&);
struct AlongRow {
  std::string_view ops;
  AlongFunction function;
  bool in_place = false;  // the in-place operators of these names, too
};
// The tables, one per file: what is worked on in parts, what is other operators, what goes by index or is found.
std::vector<AlongRow> along_parts();
std::vector<AlongRow> along_operators();
std::vector<AlongRow> along_indices();

}  // namespace sherd::plan
