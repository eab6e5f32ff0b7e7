#pragma once
// The numbers that elements stand for, of all dtypes, without libtorch.

#include <cstddef>
#include <cstdint>
#include <string>

#include "format/dtype.h"

namespace sherd::format {

/// Numbers in one element: two of complex ones (real and imaginary part) and of f4_e2m1fn_x2 (the low half byte first).
int64_t numbers_in(DType dtype);
bool is_complex(DType dtype);
bool is_floating(DType dtype);  // complex ones too

/// Decodes `count` elements, `numbers_in` numbers each. As double, ints of 64 bits are rounded; as long double (of 64
/// bits and more) they are exact.
void decode_numbers(DType dtype, const std::byte* elements, int64_t count, double* into);
void decode_numbers(DType dtype, const std::byte* elements, int64_t count, long double* into);

/// One element: "1.5", "-7", "True", "(1+2j)", "nan"; with as many digits as it takes to read back the same.
std::string element_text(DType dtype, const std::byte* element);

}  // namespace sherd::format
