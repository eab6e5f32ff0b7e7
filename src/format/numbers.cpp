#include "format/numbers.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace sherd::format {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  enum class Special { ieee, fn, fnuz } special;  // infinities and NaNs; NaN all ones; NaN the negative zero
};

float decode_small(uint32_t bits, const SmallFloat& kind) {
  const uint32_t mantissa = bits & ((1U << kind.mantissa_bits) - 1);
  const uint32_t most = (1U << kind.exponent_bits) - 1;
  const uint32_t exponent = (bits >> kind.mantissa_bits) & most;
  const bool negative = ((bits >> (kind.mantissa_bits + kind.exponent_bits)) & 1U) != 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (kind.special == SmallFloat::Special::fnuz && negative && exponent == 0 && mantissa == 0) return nan;
  if (kind.special == SmallFloat::Special::ieee && exponent == most) {
    if (mantissa != 0) return nan;
    return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  if (kind.special == SmallFloat::Special::fn && exponent == most && mantissa == (1U << kind.mantissa_bits) - 1) {
    return nan;
  }
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - kind.bias - kind.mantissa_bits)
                                    : std::ldexp(static_cast<float>(mantissa | (1U << kind.mantissa_bits)),
                                                 static_cast<int>(exponent) - kind.bias - kind.mantissa_bits);
  return negative ? -value : value;
}

constexpr SmallFloat kHalf{5, 10, 15, SmallFloat::Special::ieee};
constexpr SmallFloat kE4m3fn{4, 3, 7, SmallFloat::Special::fn};
constexpr SmallFloat kE5m2{5, 2, 15, SmallFloat::Special::ieee};
constexpr SmallFloat kE4m3fnuz{4, 3, 8, SmallFloat::Special::fnuz};
constexpr SmallFloat kE5m2fnuz{5, 2, 16, SmallFloat::Special::fnuz};

template <size_t Count>
std::array<float, Count> table_of(const SmallFloat& kind) {
  std::array<float, Count> table;
  for (size_t i = 0; i < Count; ++i) table[i] = decode_small(static_cast<uint32_t>(i), kind);
  return table;
}

float half(const std::byte* from) {
  static const auto table = table_of<65536>(kHalf);
  return table[load<uint16_t>(from)];
}
float bfloat16(const std::byte* from) {
  const uint32_t bits = static_cast<uint32_t>(load<uint16_t>(from)) << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
float e8m0(const std::byte* from) {
  const int bits = std::to_integer<int>(*from);
  return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, bits - 127);
}
constexpr std::array<float, 16> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

template <class T, class Number>
void each(const std::byte* elements, int64_t count, Number* into) {
  for (int64_t i = 0; i < count; ++i) into[i] = static_cast<Number>(load<T>(elements + i * sizeof(T)));
}
template <class Number, class Decode>
void each_by(int64_t size, const std::byte* elements, int64_t count, Number* into, Decode decode) {
  for (int64_t i = 0; i < count; ++i) into[i] = static_cast<Number>(decode(elements + i * size));
}
template <class Number>
void by_table(const SmallFloat& kind, const std::byte* elements, int64_t count, Number* into) {
  const auto table = table_of<256>(kind);
  for (int64_t i = 0; i < count; ++i) into[i] = table[std::to_integer<size_t>(elements[i])];
}

template <class Number>
void decode(DType dtype, const std::byte* elements, int64_t count, Number* into) {
  switch (dtype) {
    case DType::f64:
      return each<double>(elements, count, into);
    case DType::f32:
      return each<float>(elements, count, into);
    case DType::f16:
      return each_by(2, elements, count, into, half);
    case DType::bf16:
      return each_by(2, elements, count, into, bfloat16);
    case DType::i64:
      return each<int64_t>(elements, count, into);
    case DType::i32:
      return each<int32_t>(elements, count, into);
    case DType::i16:
      return each<int16_t>(elements, count, into);
    case DType::i8:
      return each<int8_t>(elements, count, into);
    case DType::u8:
    case DType::boolean:
      return each<uint8_t>(elements, count, into);
    case DType::u16:
      return each<uint16_t>(elements, count, into);
    case DType::u32:
      return each<uint32_t>(elements, count, into);
    case DType::u64:
      return each<uint64_t>(elements, count, into);
    case DType::c32:
      return each_by(2, elements, 2 * count, into, half);
    case DType::c64:
      return each<float>(elements, 2 * count, into);
    case DType::c128:
      return each<double>(elements, 2 * count, into);
    case DType::f8_e4m3fn:
      return by_table(kE4m3fn, elements, count, into);
    case DType::f8_e5m2:
      return by_table(kE5m2, elements, count, into);
    case DType::f8_e4m3fnuz:
      return by_table(kE4m3fnuz, elements, count, into);
    case DType::f8_e5m2fnuz:
      return by_table(kE5m2fnuz, elements, count, into);
    case DType::f8_e8m0fnu:
      return each_by(1, elements, count, into, e8m0);
    case DType::f4_e2m1fn_x2:
      for (int64_t i = 0; i < count; ++i) {
        into[2 * i] = kE2m1[std::to_integer<size_t>(elements[i]) & 15U];
        into[2 * i + 1] = kE2m1[std::to_integer<size_t>(elements[i]) >> 4U];
      }
  }
}

std::string float_text(double value, bool wide) {
  if (std::isnan(value)) return "nan";
  std::string text = wide ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".ein") == std::string::npos) text += ".";
  return text;
}

}  // namespace

bool is_complex(DType dtype) { return dtype == DType::c32 || dtype == DType::c64 || dtype == DType::c128; }
bool is_floating(DType dtype) { return dtype <= DType::bf16 || dtype >= DType::c32; }
int64_t numbers_in(DType dtype) { return is_complex(dtype) || dtype == DType::f4_e2m1fn_x2 ? 2 : 1; }

void decode_numbers(DType dtype, const std::byte* elements, int64_t count, double* into) {
  decode(dtype, elements, count, into);
}
void decode_numbers(DType dtype, const std::byte* elements, int64_t count, long double* into) {
  decode(dtype, elements, count, into);
}

std::string element_text(DType dtype, const std::byte* element) {
  if (dtype == DType::boolean) return *element != std::byte{} ? "True" : "False";
  if (dtype == DType::u64) return fmt::to_string(load<uint64_t>(element));
  if (dtype == DType::i64) return fmt::to_string(load<int64_t>(element));
  std::array<double, 2> numbers{};
  decode_numbers(dtype, element, 1, numbers.data());
  if (!is_floating(dtype)) return fmt::to_string(static_cast<int64_t>(numbers[0]));
  const bool wide = dtype == DType::f64 || dtype == DType::c128;
  if (is_complex(dtype)) {
    std::string imaginary = float_text(numbers[1], wide);
    if (imaginary.front() != '-') imaginary.insert(0, "+");
    return fmt::format("({}{}j)", float_text(numbers[0], wide), imaginary);
  }
  if (dtype == DType::f4_e2m1fn_x2) {
    return fmt::format("({}, {})", float_text(numbers[0], false), float_text(numbers[1], false));
  }
  return float_text(numbers[0], wide);
}

}  // namespace sherd::format
