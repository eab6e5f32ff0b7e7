#pragma once
// Element types by all the names that files give them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sherd::format {

// clang-format off
enum class DType : uint8_t {
  f64, f32, f16, bf16, i64, i32, i16, i8, u8, u16, u32, u64, boolean, c32, c64, c128,
  f8_e4m3fn, f8_e5m2, f8_e4m3fnuz, f8_e5m2fnuz, f8_e8m0fnu, f4_e2m1fn_x2,
};
// clang-format on
inline constexpr size_t kDTypeCount = 22;

struct DTypeNames {
  DType dtype;
  int64_t size;                  // bytes per element
  std::string_view text;         // "f32": in sherd's notation
  std::string_view torch;        // "float32": torch.float32
  std::string_view storage;      // "FloatStorage"; empty for dtypes newer than typed storages (_rebuild_tensor_v3)
  std::string_view safetensors;  // "F32"; empty where that format has no name for it
};

const DTypeNames& names_of(DType dtype);
inline int64_t size_of(DType dtype) { return names_of(dtype).size; }
std::optional<DType> dtype_from_torch(std::string_view name);
std::optional<DType> dtype_from_storage(std::string_view storage_class);
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace sherd::format
