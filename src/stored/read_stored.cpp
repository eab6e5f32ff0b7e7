#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/inspect.h"
#include "stored/open_known.h"
#include "stored/tensor_parts.h"

namespace sherd {
namespace {

constexpr int64_t kPart = int64_t{8} << 20;

[[noreturn]] void refuse_name(const format::Metadata& metadata, const std::string& path, const std::string& name,
                              const std::string& operation) {
  ErrorText text(operation, "the checkpoint has no tensor of this name");
  text.fact("checkpoint", path).fact("name", name);
  std::string near;
  size_t count = 0;
  for (const format::MetadataEntry& entry : metadata.entries) {
    const bool similar = entry.name.find(name) != std::string::npos || name.find(entry.name) != std::string::npos;
    if (!similar || ++count > 5) continue;
    near.append(near.empty() ? "" : ", ").append(entry.name);
  }
  if (!near.empty()) text.fact("similar", count > 5 ? near + ", ..." : near);
  throw std::invalid_argument(text);
}

void read_parts(const std::string& path, const std::string& name, const std::optional<Box>& box,
                const std::function<void(const std::string& dtype, const Dims& size)>& begin,
                const std::function<void(std::span<const std::byte>)>& take, const ReadStoredOptions& options) {
  const auto checkpoint =
      stored::open_known(stored::storage_or_disk(options.storage), path,
                         {.verify = options.verify, .operation = options.operation, .no_verify = "--no-verify"});
  const format::MetadataEntry* entry = checkpoint->metadata().find(name);
  if (entry == nullptr || !std::holds_alternative<format::TensorEntry>(entry->content)) {
    refuse_name(checkpoint->metadata(), path, name, options.operation);
  }
  stored::TensorParts parts(*checkpoint, *entry, options.operation);
  const format::TensorEntry& tensor = parts.tensor();
  const Box whole{Dims(tensor.size.size(), 0), tensor.size};
  const Box wanted = box.value_or(whole);
  if (wanted.size.size() != tensor.size.size() || !contains(whole, wanted)) {
    throw std::invalid_argument(ErrorText(options.operation, "the box is not inside of the tensor")
                                    .fact("tensor", name)
                                    .fact("size", to_string(tensor.size))
                                    .fact("box", to_string(wanted)));
  }
  parts.check_covered(wanted);
  begin(std::string(format::names_of(tensor.dtype).text), wanted.size);
  const int64_t size = size_of(tensor.dtype);
  const int64_t total = numel(wanted) * size;
  int64_t done = 0;
  std::vector<std::byte> bytes;
  if (total == 0) return;
  stored::for_each_tile(wanted, std::max<int64_t>(kPart / size, 1), [&](const Box& tile) {
    bytes.resize(static_cast<size_t>(numel(tile) * size));
    parts.read(tile, bytes.data());
    take(bytes);
    done += static_cast<int64_t>(bytes.size());
    if (options.progress) options.progress(done, total);
  });
}

}  // namespace

void read_stored(const std::string& path, const std::string& name, const std::optional<Box>& box,
                 const std::function<void(const std::string& dtype, const Dims& size)>& begin,
                 const std::function<void(std::span<const std::byte>)>& take, const ReadStoredOptions& options) {
  read_parts(path, name, box, begin, take, options);
}

StoredValues read_stored(const std::string& path, const std::string& name, const std::optional<Box>& box,
                         const ReadStoredOptions& options) {
  StoredValues values;
  read_parts(
      path, name, box,
      [&](const std::string& dtype, const Dims& size) {
        values.dtype = dtype;
        values.size = size;
      },
      [&](std::span<const std::byte> part) { values.bytes.insert(values.bytes.end(), part.begin(), part.end()); },
      options);
  return values;
}

}  // namespace sherd
