// libFuzzer: every name in a storage.

#include <cstddef>
#include <cstdint>

#include "fuzz/format_check.h"
#include "storage/paths.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string clean = clean_path(input);
  must_hold(clean_path(clean) == clean, "a clean path is cleaned again");
  must_hold(!parent_of(clean).empty(), "a path without a folder");
  if (const auto name = parse_beside(input)) {
    must_hold(beside(name->folder, name->what, name->id) == input, "a name that is put together differently");
  }
  read_or_refuse([&] {
    check_file_name(input);
    must_hold(clean == input && !input.starts_with('/'), "a name of a file that is no clean one");
  });
  return 0;
}
