// libFuzzer: every pickle.

#include <cstddef>
#include <cstdint>

#include "format/pickle.h"
#include "format/unfolded.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const Value value = unpickle(bytes_of(input), {.max_depth = 100});
    to_string(value);
    if (!unfolds_too_far(value)) to_string(value, size_t{1} << 20);
    const std::string written = pickle(value);
    must_hold(pickle(unpickle(bytes_of(written))) == written, "what was written reads differently");
  });
  return 0;
}
