// libFuzzer: every sherd.manifest. Its digest is put right first, since nothing gets past a wrong one.

#include <cstddef>
#include <cstdint>

#include "format/manifest.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  std::string input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] { decode_manifest(bytes_of(input), "input"); });
  const Digest digest = digest_of(bytes_of(input));
  input.append(reinterpret_cast<const char*>(&digest.low), 8);
  input.append(reinterpret_cast<const char*>(&digest.high), 8);
  read_or_refuse([&] {
    const Manifest manifest = decode_manifest(bytes_of(input), "input");
    must_hold(decode_manifest(bytes_of(encode_manifest(manifest)), "written") == manifest,
              "what was written reads differently");
  });
  return 0;
}
