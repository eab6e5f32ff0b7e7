// libFuzzer: every folder as a checkpoint, whatever its files say of each other; on a base that is whole.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "fuzz/format_check.h"
#include "fuzz/read_stored.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "sherd/storage.h"

namespace {

using namespace sherd;
using namespace sherd::testing;

using Files = std::map<std::string, std::string>;

// Which one a byte of the input stands for.
constexpr const char* kNames[] = {".metadata",    "sherd.manifest", "__0_0.distcp", "__0_0.distcp.blocks",
                                  "__1_0.distcp", "__0.metadata",   "__1.metadata", "model.safetensors.index.json",
                                  "a.safetensors"};
const std::string kPath = "runs/ck";
const std::string kBase = "runs/sherd_base";  // as the seed on a base names it

void put(Storage& storage, const std::string& path, const Files& files) {
  const auto draft = storage.draft(path, "fuzz");
  for (const auto& [name, bytes] : files) {
    const auto writer = draft->create(name, static_cast<int64_t>(bytes.size()));
    writer->write(0, bytes_of(bytes));
    writer->finish();
  }
  draft->commit(files.begin()->first);
}

/// The number of files, then of each one byte for its name, four for its length, and its bytes: what there is of them.
Files files_in(std::string_view input) {
  Files files;
  if (input.empty()) return files;
  auto count = static_cast<uint8_t>(input.front());
  input.remove_prefix(1);
  for (; count > 0 && input.size() >= 5; --count) {
    const char* name = kNames[static_cast<uint8_t>(input.front()) % std::size(kNames)];
    uint32_t length = 0;
    std::memcpy(&length, input.data() + 1, sizeof(length));
    input.remove_prefix(5);
    files[name] = input.substr(0, length);
    input.remove_prefix(files[name].size());
  }
  return files;
}

const Files& base_files() {
  static const Files files = [] {
    Files read;
    for (const char* name : {".metadata", "sherd.manifest", "__0_0.distcp", "__1_0.distcp"}) {
      std::ifstream file(std::string(SHERD_GOLDEN_BASE) + "/" + name, std::ios::binary);
      read[name] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      must_hold(!read[name].empty(), "a file of the base is not there");
    }
    return read;
  }();
  return files;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Files files = files_in({reinterpret_cast<const char*>(data), size});
  if (files.empty()) return 0;
  const auto storage = memory_storage();
  put(*storage, kBase, base_files());
  put(*storage, kPath, files);
  read_or_refuse<std::runtime_error>([&] { verify_checkpoint(kPath, {.storage = storage}); });
  if (!can_be_read(storage, kPath) || !is_small(storage, kPath)) return 0;
  try {
    rewrite_checkpoint({kPath}, "a.pt", {.from_storage = storage, .to_storage = storage});
  } catch (const std::exception&) {  // what a file cannot hold
    return 0;
  }
  must_hold(can_be_read(storage, "a.pt"), "what was written cannot be read");
  return 0;
}
