// libFuzzer: every text that the layout parsers read.

#include <cstddef>
#include <cstdint>

#include "fuzz/parse_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sherd::testing::check_parsers({reinterpret_cast<const char*>(data), size});
  return 0;
}
