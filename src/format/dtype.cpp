#include "format/dtype.h"

#include <array>

namespace sherd::format {
namespace {

// clang-format off
constexpr std::array<DTypeNames, kDTypeCount> kDTypes = {{
    // dtype                  size text            torch                storage                 safetensors
    {DType::f64,                8, "f64",          "float64",           "DoubleStorage",        "F64"},
    {DType::f32,                4, "f32",          "float32",           "FloatStorage",         "F32"},
    {DType::f16,                2, "f16",          "float16",           "HalfStorage",          "F16"},
    {DType::bf16,               2, "bf16",         "bfloat16",          "BFloat16Storage",      "BF16"},
    {DType::i64,                8, "i64",          "int64",             "LongStorage",          "I64"},
    {DType::i32,                4, "i32",          "int32",             "IntStorage",           "I32"},
    {DType::i16,                2, "i16",          "int16",             "ShortStorage",         "I16"},
    {DType::i8,                 1, "i8",           "int8",              "CharStorage",          "I8"},
    {DType::u8,                 1, "u8",           "uint8",             "ByteStorage",          "U8"},
    {DType::u16,                2, "u16",          "uint16",            "",                     "U16"},
    {DType::u32,                4, "u32",          "uint32",            "",                     "U32"},
    {DType::u64,                8, "u64",          "uint64",            "",                     "U64"},
    {DType::boolean,            1, "bool",         "bool",              "BoolStorage",          "BOOL"},
    {DType::c32,                4, "c32",          "complex32",         "",                     ""},
    {DType::c64,                8, "c64",          "complex64",         "ComplexFloatStorage",  "C64"},
    {DType::c128,              16, "c128",         "complex128",        "ComplexDoubleStorage", ""},
    {DType::f8_e4m3fn,          1, "f8_e4m3fn",    "float8_e4m3fn",     "",                     "F8_E4M3"},
    {DType::f8_e5m2,            1, "f8_e5m2",      "float8_e5m2",       "",                     "F8_E5M2"},
    {DType::f8_e4m3fnuz,        1, "f8_e4m3fnuz",  "float8_e4m3fnuz",   "",                     "F8_E4M3FNUZ"},
    {DType::f8_e5m2fnuz,        1, "f8_e5m2fnuz",  "float8_e5m2fnuz",   "",                     "F8_E5M2FNUZ"},
    {DType::f8_e8m0fnu,         1, "f8_e8m0fnu",   "float8_e8m0fnu",    "",                     "F8_E8M0"},
    {DType::f4_e2m1fn_x2,       1, "f4_e2m1fn_x2", "float4_e2m1fn_x2",  "",                     "F4"},
}};
// clang-format on

constexpr bool rows_are_in_the_order_of_the_enum() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_the_order_of_the_enum());

std::optional<DType> find(std::string_view DTypeNames::*column, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const DTypeNames& row : kDTypes) {
    if (row.*column == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

const DTypeNames& names_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_torch(std::string_view name) { return find(&DTypeNames::torch, name); }
std::optional<DType> dtype_from_storage(std::string_view storage_class) {
  return find(&DTypeNames::storage, storage_class);
}
std::optional<DType> dtype_from_safetensors(std::string_view name) { return find(&DTypeNames::safetensors, name); }

}  // namespace sherd::format
