#pragma once
// What a rule may know of a call: shapes and plain arguments, no tensors.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sherd/box.h"

namespace sherd::rules {

struct TensorArgument {
  Dims shape;
  Dims stride;           // may be empty where unknown
  bool present = true;   // false for an optional tensor that is not there
  int argument = 0;      // which argument of the operator it belongs to
  bool is_mask = false;  // of booleans: as an index it picks where it is true
  int64_t element_size = 0;
};

using Value = std::variant<std::monostate, bool, int64_t, double, Dims, std::string>;

struct PlainArgument {
  std::string name;
  int argument = 0;
  Value value;
};

struct OpCall {
  std::string op;                       // "aten::mm"
  std::string overload;                 // "" or "Tensor"
  std::vector<TensorArgument> tensors;  // in argument order; lists are laid flat; `out` arguments are not among them
  std::vector<PlainArgument> plain;
  int num_outputs = 1;     // 0: as many as the rule has
  int64_t dtype_size = 0;  // bytes of an element of the dtype that an argument asks for; 0 where none does

  const PlainArgument* find(std::string_view name) const;
  /// The argument as an integer (bools count), or `otherwise` where it is absent or None.
  int64_t integer(std::string_view name, int64_t otherwise) const;
  /// The argument as a list (one integer counts as one), or nothing where it is absent or None.
  std::optional<Dims> list(std::string_view name) const;
};

}  // namespace sherd::rules
