// libFuzzer: every report of a rank on the files that it wrote.

#include <cstddef>
#include <cstdint>

#include "checkpoint/save_report.h"
#include "fuzz/messages_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::detail;
  using namespace sherd::testing;
  const std::string input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const SaveReport report = decode_report(input);
    must_hold(decode_report(encode(report)) == report, "what was written reads differently");
  });
  return 0;
}
