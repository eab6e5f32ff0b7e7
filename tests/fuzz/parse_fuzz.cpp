// libFuzzer: every text that the layout parsers read.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -DFMT_HEADER_ONLY -Iinclude -Isrc -Itests
//       tests/fuzz/parse_fuzz.cpp src/layout/*.cpp -o parse_fuzz && ./parse_fuzz

#include <cstddef>
#include <cstdint>

#include "fuzz/parse_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sherd::testing::check_parsers({reinterpret_cast<const char*>(data), size});
  return 0;
}
