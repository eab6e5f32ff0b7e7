// libFuzzer: every file as a checkpoint of one file, whatever its format; and one flipped bit in those that sherd
// writes, which must be found.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fuzz/format_check.h"
#include "fuzz/read_stored.h"
#include "sherd/convert.h"
#include "sherd/storage.h"
#include "stored/read_file.h"

namespace {

using namespace sherd;
using namespace sherd::testing;

void put(Storage& storage, const std::string& path, std::string_view bytes) {
  const auto draft = storage.draft(path, "fuzz");
  const auto writer = draft->create(Draft::kItself, static_cast<int64_t>(bytes.size()));
  writer->write(0, bytes_of(bytes));
  writer->finish();
  draft->commit(Draft::kItself);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto storage = memory_storage();
  put(*storage, "input", input);
  if (!can_be_read(storage, "input") || size < 4) return 0;
  for (const std::string path : {"a.pt", "a.safetensors"}) {
    try {
      rewrite_checkpoint({"input"}, path, {.from_storage = storage, .to_storage = storage});
    } catch (const std::exception&) {  // what this format cannot hold
      continue;
    }
    must_hold(can_be_read(storage, path), "what was written cannot be read");
    std::string bytes = stored::read_file(*storage, path);
    const size_t bit = (data[size / 2] * 65536U + data[size / 3] * 256U + data[size / 4]) % (8 * bytes.size());
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    put(*storage, path, bytes);
    const bool found = !can_be_read(storage, path);
    if (!found)
      std::fprintf(stderr, "fuzz: %s, bit %zu of byte %zu of %zu\n", path.c_str(), bit % 8, bit / 8, bytes.size());
    must_hold(found, "a flipped bit was not found");
  }
  return 0;
}
