#include "checkpoint/dtypes.h"

#include <array>
#include <utility>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

using format::DType;

constexpr std::array<std::pair<DType, c10::ScalarType>, 22> kTypes{{
    {DType::f64, c10::kDouble},
    {DType::f32, c10::kFloat},
    {DType::f16, c10::kHalf},
    {DType::bf16, c10::kBFloat16},
    {DType::i64, c10::kLong},
    {DType::i32, c10::kInt},
    {DType::i16, c10::kShort},
    {DType::i8, c10::kChar},
    {DType::u8, c10::kByte},
    {DType::u16, c10::kUInt16},
    {DType::u32, c10::kUInt32},
    {DType::u64, c10::kUInt64},
    {DType::boolean, c10::kBool},
    {DType::c32, c10::kComplexHalf},
    {DType::c64, c10::kComplexFloat},
    {DType::c128, c10::kComplexDouble},
    {DType::f8_e4m3fn, c10::kFloat8_e4m3fn},
    {DType::f8_e5m2, c10::kFloat8_e5m2},
    {DType::f8_e4m3fnuz, c10::kFloat8_e4m3fnuz},
    {DType::f8_e5m2fnuz, c10::kFloat8_e5m2fnuz},
    {DType::f8_e8m0fnu, c10::kFloat8_e8m0fnu},
    {DType::f4_e2m1fn_x2, c10::ScalarType::Float4_e2m1fn_x2},
}};

}  // namespace

DType to_format(const char* operation, c10::ScalarType type) {
  for (const auto& [file, torch] : kTypes) {
    if (torch == type) return file;
  }
  throw_value_error(ErrorText(operation, "a tensor of this dtype cannot be kept in a file")
                        .fact("dtype", c10::toString(type))
                        .help("tensor.to(torch::kFloat), or tensor.dequantize() for a quantized one"));
}

c10::ScalarType to_torch(DType type) {
  for (const auto& [file, torch] : kTypes) {
    if (file == type) return torch;
  }
  return c10::ScalarType::Undefined;
}

}  // namespace sherd::detail
