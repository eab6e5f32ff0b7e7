// libFuzzer: every zip archive.

#include <cstddef>
#include <cstdint>

#include "format/archive.h"
#include "format/own_digests.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const MemorySource source(bytes_of(input));
    const Archive archive = read_archive(source, "input");
    int64_t total = 0;
    for (const Record& record : archive.records) {
      must_hold(record.offset >= 0 && record.offset + record.size <= source.size(), "a record outside of the input");
      total += record.size;
      read_or_refuse([&] { read_record(source, record, "input"); });
    }
    must_hold(total <= source.size(), "records overlap");
    read_or_refuse([&] { digests_in(source, archive, "input"); });
  });
  return 0;
}
