// libFuzzer: every safetensors file, with what its metadata say about shards.

#include <cstddef>
#include <cstdint>

#include "format/own_digests.h"
#include "format/safetensors.h"
#include "fuzz/format_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::format;
  using namespace sherd::testing;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] { decode_safetensors_index(bytes_of(input), "input"); });
  read_or_refuse([&] {
    SafetensorsFile file = read_safetensors(MemorySource(bytes_of(input)), "input");
    int64_t total = 0;
    for (const SafeTensor& tensor : file.tensors) {
      must_hold(tensor.offset >= 8 && tensor.offset + tensor.data_bytes() <= file.size,
                "a tensor outside of the input");
      total += tensor.data_bytes();
    }
    must_hold(total <= file.size, "tensors overlap");
    read_or_refuse([&] {
      const NamedSafetensors named[] = {{"file", file}};
      metadata_of(named, "folder");
    });
    read_or_refuse([&] { digests_in(MemorySource(bytes_of(input)), file, "input"); });
    std::string written = lay_out_safetensors(file);
    written.resize(static_cast<size_t>(file.size));
    must_hold(read_safetensors(MemorySource(bytes_of(written)), "written") == file,
              "what was written reads differently");
  });
  return 0;
}
