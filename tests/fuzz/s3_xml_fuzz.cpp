// libFuzzer: every answer of an object store, and every text in one.

#include <cstddef>
#include <cstdint>

#include "fuzz/format_check.h"
#include "storage/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t total = 0;
  for (const std::string_view element : xml_elements(input, "Contents")) {
    must_hold(element.data() >= input.data() && element.data() + element.size() <= input.data() + input.size(),
              "an element outside of the answer");
    total += element.size();
    xml_text(element, "Key");
    xml_text(element, "Size");
  }
  must_hold(total <= input.size(), "elements overlap");
  xml_text(input, "NextContinuationToken");
  must_hold(xml_text("<Key>" + xml_escape(input) + "</Key>", "Key") == input, "what was written reads differently");
  return 0;
}
