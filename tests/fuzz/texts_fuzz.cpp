// libFuzzer: the texts that sherd keeps in safetensors files, and every pickle taken apart into a state.

#include <cstddef>
#include <cstdint>

#include "format/flatten.h"
#include "format/pickle.h"
#include "format/safetensors_texts.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const auto objects = decode_objects(input, "input");
    must_hold(decode_objects(encode_objects(objects), "written").size() == objects.size(),
              "what was written has another number of objects");
  });
  read_or_refuse([&] {
    const NamedPaths paths = decode_paths(input, "input");
    must_hold(decode_paths(encode_paths(paths), "written") == paths, "paths that were written read differently");
  });
  read_or_refuse([&] {
    const auto dicts = decode_dicts(input, "input");
    must_hold(decode_dicts(encode_dicts(dicts), "written") == dicts, "dicts that were written read differently");
  });
  read_or_refuse([&] {
    const auto ordered = decode_ordered(input, "input");
    must_hold(decode_ordered(encode_ordered(ordered), "written").size() == ordered.size(),
              "what was written has another number of OrderedDicts");
  });
  read_or_refuse([&] {
    const Value value = unpickle(bytes_of(input));
    for (const FlatValue& leaf : flatten(value, {.source = "input", .script = size % 2 == 0}).leaves) {
      must_hold(!leaf.path.empty(), "a leaf without a path");
    }
  });
  return 0;
}
