#pragma once
// Operators along a sharded dim: most of them need not gather it (docs/rules.md, "Not rules"). tensor/ answers them by
// work on the parts or as other operators; here stands, without tensors, when it does so and what the ranks then
// exchange. tests/property/communication_test.cpp holds the two to each other.

#include <optional>
#include <string>
#include <vector>

#include "rules/op_call.h"
#include "sherd/explain.h"

namespace sherd::plan {

struct Along {
  std::string how;  // in words
  std::vector<Explanation::Operand> operands;
  std::vector<Explanation::Exchange> exchanges;
  std::vector<Explanation::Output> outputs;
};

/// Nothing where the operator is not rewritten, or nothing that it works along is sharded: then its rule holds. Where
/// it depends on the data whether it is (a sort of NaN, an index out of range), the usual is assumed. `call` is `given`
/// as rules see it.
std::optional<Along> along_sharded_dim(const OperatorCall& given, const rules::OpCall& call, const Mesh& mesh);

/// Bytes of an element, from the name of its type: letters, then bits. Throws std::invalid_argument for other names.
int64_t element_size(const std::string& dtype);
/// Of real or complex numbers.
bool has_fraction(std::string_view dtype);

/// The steps that bring a tensor to other placements, each with what the rank that receives most receives.
std::vector<Explanation::Step> steps_between(const Mesh& mesh, const TensorText& tensor, const Placements& to);

}  // namespace sherd::plan
