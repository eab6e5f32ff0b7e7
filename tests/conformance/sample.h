#pragma once
// Tensors that tests send: small integers in every dtype, so that sums are exact.

#include <torch/torch.h>

#include <string>
#include <vector>

#include "sherd/placement.h"

namespace sherd::testing {

/// What every transport can move.
inline const std::vector<at::ScalarType> kDtypes = {
    at::kDouble,       at::kFloat,         at::kHalf,          at::kBFloat16,   at::kChar,   at::kByte,
    at::kShort,        at::kInt,           at::kLong,          at::kBool,       at::kUInt16, at::kUInt32,
    at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2};

/// What every transport can reduce.
inline const std::vector<at::ScalarType> kReducibleDtypes = {
    at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kChar,         at::kByte,
    at::kShort,  at::kInt,   at::kLong, at::kBool,     at::kComplexFloat, at::kComplexDouble};

inline const std::vector<ReduceOp> kReductions = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                                                  ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

/// `numel` elements that depend on `seed` and position, from 0 to 2 (0 and 1 for bool).
inline at::Tensor sample(int64_t seed, int64_t numel, at::ScalarType dtype, const at::TensorOptions& options = {}) {
  const at::Tensor numbers = (at::arange(numel, at::kLong) * 5 + seed * 7 + seed * seed) % 11 % 3;
  at::Tensor values;
  if (dtype == at::kBool) {
    values = numbers % 2 == 1;
  } else if (at::isComplexType(dtype)) {
    values = at::complex(numbers.to(at::kDouble), numbers.to(at::kDouble) - 1).to(dtype);
  } else {
    values = numbers.to(dtype);
  }
  return values.to(options.device());
}

inline bool allowed(at::ScalarType dtype, ReduceOp op) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (at::isComplexType(dtype)) return op == ReduceOp::sum || op == ReduceOp::avg;
  if (at::isFloatingType(dtype)) return !bitwise;
  return op != ReduceOp::avg;
}

/// The reduction of whole tensors, one after the other.
inline at::Tensor reduced(const std::vector<at::Tensor>& parts, ReduceOp op) {
  at::Tensor result = parts.front().clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor& part = parts[i];
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result = result + part;
        break;
      case ReduceOp::product:
        result = result * part;
        break;
      case ReduceOp::min:
        result = at::minimum(result, part);
        break;
      case ReduceOp::max:
        result = at::maximum(result, part);
        break;
      case ReduceOp::band:
        result = at::bitwise_and(result, part);
        break;
      case ReduceOp::bor:
        result = at::bitwise_or(result, part);
        break;
      case ReduceOp::bxor:
        result = at::bitwise_xor(result, part);
        break;
    }
  }
  return op == ReduceOp::avg ? result / static_cast<int64_t>(parts.size()) : result;
}

inline std::string name_of(at::ScalarType dtype) { return c10::toString(dtype); }

/// Equal dtype, number of elements and bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.numel() != b.numel()) return false;
  if (a.numel() == 0) return true;
  const auto bytes = [](const at::Tensor& t) { return t.cpu().contiguous().view({-1}).view(at::kByte); };
  return at::equal(bytes(a), bytes(b));
}

}  // namespace sherd::testing
