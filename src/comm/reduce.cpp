#include "comm/reduce.h"

#include <array>
#include <optional>

#include "comm/reduce_loops.h"

namespace sherd::detail {
namespace {

std::optional<LoopType> loop_type(c10::ScalarType dtype) {
  using c10::ScalarType;
  switch (dtype) {
    case ScalarType::Float:
      return LoopType::f32;
    case ScalarType::Double:
      return LoopType::f64;
    case ScalarType::Half:
      return LoopType::f16;
    case ScalarType::BFloat16:
      return LoopType::bf16;
    case ScalarType::Char:
      return LoopType::i8;
    case ScalarType::Byte:
    case ScalarType::Bool:
      return LoopType::u8;
    case ScalarType::Short:
      return LoopType::i16;
    case ScalarType::Int:
      return LoopType::i32;
    case ScalarType::Long:
      return LoopType::i64;
    default:
      return std::nullopt;
  }
}

LoopOp loop_op(ReduceOp op, bool truth) {
  switch (op) {
    case ReduceOp::sum:
      return truth ? LoopOp::bor : LoopOp::sum;
    case ReduceOp::avg:
      return LoopOp::average;
    case ReduceOp::product:
      return truth ? LoopOp::band : LoopOp::product;
    case ReduceOp::min:
      return LoopOp::min;
    case ReduceOp::max:
      return LoopOp::max;
    case ReduceOp::band:
      return LoopOp::band;
    case ReduceOp::bor:
      return LoopOp::bor;
    case ReduceOp::bxor:
      return LoopOp::bxor;
  }
  return LoopOp::count;
}

}  // namespace

ReduceLoop reduce_loop(c10::ScalarType dtype, ReduceOp op) {
  const auto type = loop_type(dtype);
  if (!type) return nullptr;
  const LoopOp how = loop_op(op, dtype == c10::ScalarType::Bool);
  const Loop wide = avx2_loop(*type, how);
  return wide != nullptr ? wide : find_loop(*type, how);
}

}  // namespace sherd::detail
