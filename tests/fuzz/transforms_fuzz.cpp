// libFuzzer: every compressed item. Without libzstd in the build all of them are refused.

#include <cstddef>
#include <cstdint>

#include "format/transforms.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  constexpr int64_t kMost = 1 << 20;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> once = {kZstdTransform};
  const std::vector<std::string> twice = {kZstdTransform, "stream.zstd@some.where/1.5"};
  read_or_refuse([&] { decode({std::string(input)}, {}, kMost); });  // a name
  for (const auto& transforms : {once, twice}) {
    read_or_refuse([&] {
      const std::string plain = decode(transforms, bytes_of(input), kMost);
      must_hold(static_cast<int64_t>(plain.size()) <= kMost, "more bytes than were allowed");
    });
    read_or_refuse([&] {
      const std::string packed = encode(transforms, bytes_of(input));
      must_hold(decode(transforms, bytes_of(packed), static_cast<int64_t>(packed.size() + input.size())) == input,
                "what was written reads differently");
    });
  }
  return 0;
}
