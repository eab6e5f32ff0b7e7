// libFuzzer: every .metadata.

#include <cstddef>
#include <cstdint>

#include "format/dcp.h"
#include "fuzz/format_check.h"

namespace {

std::string encoded(const sherd::format::Metadata& metadata) {
  std::string bytes;
  sherd::format::encode_metadata(metadata, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const std::string written = encoded(decode_metadata(bytes_of(input), "input"));
    must_hold(encoded(decode_metadata(bytes_of(written), "written")) == written, "what was written reads differently");
  });
  return 0;
}
