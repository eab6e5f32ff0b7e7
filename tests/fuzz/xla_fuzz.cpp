// libFuzzer: the texts and the bytes of XLA's shardings.

#include <cstddef>
#include <cstdint>

#include "fuzz/xla_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sherd::testing::check_xla_parsers({reinterpret_cast<const char*>(data), size});
  return 0;
}
