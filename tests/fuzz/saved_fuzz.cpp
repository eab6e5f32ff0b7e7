// libFuzzer: every file of torch.save and torch::save, and every pickle in one whose CRCs are right, since no change
// of an input gets past a wrong one.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "format/flatten.h"
#include "format/saved.h"
#include "format/zip.h"
#include "fuzz/format_check.h"

namespace {

using namespace sherd::format;
using namespace sherd::testing;

/// An archive of these records, by name.
std::string archive_with(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string bytes;
  std::vector<ZipEntry> entries;
  for (const auto& [name, content] : records) {
    const auto size = static_cast<int64_t>(content.size());
    entries.push_back({name, static_cast<int64_t>(bytes.size()), size, crc32(bytes_of(content))});
    append_local_header(bytes, entries.back());
    bytes += content;
    append_descriptor(bytes, entries.back());
  }
  append_directory(bytes, entries, static_cast<int64_t>(bytes.size()));
  return bytes;
}

void check(std::string_view input) {
  read_or_refuse([&] {
    const Saved saved = read_saved(MemorySource(bytes_of(input)), "input");
    for_each_tensor(saved.value, [&](const TensorRef& tensor) {
      if (tensor.meta) return;
      const Record* record = saved.archive.find("data/" + tensor.storage);
      must_hold(record != nullptr && record->size >= tensor.storage_bytes, "a tensor without its storage");
      int64_t last = sherd::numel(tensor.sizes) > 0 ? 1 + tensor.offset : 0;
      for (size_t d = 0; last > 0 && d < tensor.sizes.size(); ++d) last += (tensor.sizes[d] - 1) * tensor.strides[d];
      must_hold(tensor.offset >= 0 && last * size_of(tensor.dtype) <= tensor.storage_bytes,
                "a tensor outside of its storage");
    });
    flatten(saved.value, {.source = "input", .script = saved.archive.find("constants.pkl") != nullptr});
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check(input);
  for (const char* kind : {"archive/byteorder", "archive/constants.pkl"}) {
    check(archive_with({{"archive/data.pkl", std::string(input)},
                        {kind, "little"},
                        {"archive/data/0", std::string(64, '\1')},
                        {"archive/data/1", ""},
                        {"archive/version", "3\n"}}));
  }
  return 0;
}
