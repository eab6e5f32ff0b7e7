// libFuzzer: every text of what communication costs.

#include <cstddef>
#include <cstdint>

#include "fuzz/format_check.h"
#include "sherd/costs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const std::string written = to_string(parse_costs(input));  // with three digits
    must_hold(to_string(parse_costs(written)) == written, "what was written reads differently");
  });
  return 0;
}
