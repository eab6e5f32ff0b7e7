// libFuzzer: every record of a large file that is being written to an object store.

#include <cstddef>
#include <cstdint>

#include "fuzz/format_check.h"
#include "storage/s3.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd;
  using namespace sherd::testing;
  const std::string input(reinterpret_cast<const char*>(data), size);
  read_or_refuse<std::runtime_error>([&] {
    const S3Upload upload = parse_s3_upload(input);
    const S3Upload again = parse_s3_upload(to_text(upload));
    must_hold(again.id == upload.id && again.etags == upload.etags, "what was written reads differently");
  });
  return 0;
}
