#include "checkpoint/write_safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "checkpoint/tensor_bytes.h"
#include "comm/errors.h"
#include "format/object_json.h"
#include "format/safetensors.h"
#include "format/safetensors_texts.h"
#include "stored/file_stream.h"

namespace sherd::detail {
namespace {

constexpr int64_t kPart = int64_t{16} << 20;

using Files = std::vector<std::vector<const ItemToSave*>>;

// Tensors of no element: the first rank tells how large they are, whoever would hold their parts.
std::vector<ItemToSave> empty_ones(const AgreedState& state, int64_t rank) {
  std::vector<ItemToSave> items;
  for (size_t i = 0; rank == 0 && i < state.leaves.size(); ++i) {
    const AgreedLeaf& leaf = state.leaves[i];
    if (!leaf.is_tensor || numel(leaf.size) > 0) continue;
    items.push_back({i, Dims(leaf.size.size(), 0), {leaf.dtype, leaf.size, {}}, at::Tensor()});
  }
  return items;
}

// The chunks of one tensor into files of their own.
Files files_of(std::span<const ItemToSave> items, std::span<const ItemToSave> empty) {
  Files files;
  if (!empty.empty()) files.emplace_back();
  for (const ItemToSave& item : empty) files.front().push_back(&item);
  std::unordered_map<size_t, size_t> next;  // by leaf
  for (const ItemToSave& item : items) {
    if (numel(item.item.sizes) == 0) continue;
    const size_t file = next[item.leaf]++;
    if (file == files.size()) files.emplace_back();
    files[file].push_back(&item);
  }
  return files;
}

using Texts = std::vector<std::pair<std::string, std::string>>;

Texts texts_of(const AgreedState& state, std::span<const ObjectToSave> objects, const SafetensorsOptions& options) {
  Texts texts;
  if (!objects.empty()) {
    std::vector<format::NamedObject> named;
    for (const ObjectToSave& object : objects) named.push_back({state.leaves[object.leaf].name, object.bytes});
    texts.emplace_back(format::kObjectsKey, format::encode_objects(named));
  }
  if (options.rank != 0) return texts;
  if (!options.dicts.empty()) texts.emplace_back(format::kDictsKey, format::encode_dicts(options.dicts));
  format::NamedPaths paths;
  for (const AgreedLeaf& leaf : state.leaves) paths.emplace_back(leaf.name, leaf.path);
  if (!format::are_plain(paths)) texts.emplace_back(format::kPathsKey, format::encode_paths(paths));
  return texts;
}

format::ManifestFile write_file(Draft& draft, const std::string& name, const AgreedState& state,
                                const std::vector<const ItemToSave*>& items, const Texts& texts,
                                const SafetensorsOptions& options) {
  format::SafetensorsFile file;
  std::vector<std::pair<std::string, Dims>> offsets;
  std::map<std::string_view, const ItemToSave*> by_name;
  for (const ItemToSave* item : items) {
    const std::string& tensor = state.leaves[item->leaf].name;
    file.tensors.push_back({tensor, item->item.dtype, item->item.sizes, 0});
    offsets.emplace_back(tensor, item->offsets);
    by_name[tensor] = item;
  }
  file.metadata = format::sharding_metadata(offsets);
  file.metadata.emplace_back(format::kSaveIdKey, options.id);
  file.metadata.insert(file.metadata.end(), texts.begin(), texts.end());
  const std::string header = format::lay_out_safetensors(file);
  stored::FileStream stream(draft, name, file.size, nullptr, options.told);
  stream.append(header);
  for (const format::SafeTensor& tensor : file.tensors) {
    const at::Tensor& data = by_name.at(tensor.name)->data;
    if (data.defined()) for_each_part(data, kPart, [&](std::span<const std::byte> part) { stream.append(part); });
  }
  return stream.finish().file;
}

}  // namespace

void check_safetensors(const AgreedState& state) {
  for (const AgreedLeaf& leaf : state.leaves) {
    if (!leaf.is_tensor || !names_of(leaf.dtype).safetensors.empty()) continue;
    throw_value_error(ErrorText("save", "safetensors cannot hold tensors of this dtype")
                          .fact("tensor", leaf.name)
                          .fact("dtype", names_of(leaf.dtype).text)
                          .help("SaveOptions{.format = CheckpointFormat::dcp}, or another dtype"));
  }
}

SaveReport write_safetensors(Draft& draft, const AgreedState& state, std::span<const ItemToSave> items,
                             std::span<const ObjectToSave> objects, const SafetensorsOptions& options) {
  const std::vector<ItemToSave> empty = empty_ones(state, options.rank);
  Files files = files_of(items, empty);
  const Texts texts = texts_of(state, objects, options);
  // The first rank has a file in any case: a checkpoint of nothing is one, too.
  if (files.empty() && (!texts.empty() || options.rank == 0)) files.emplace_back();
  SaveReport report;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("shard-{:05}-model-{:05}-of-{:05}{}.safetensors", options.rank + 1, i + 1,
                                         files.size(), options.id_in_names ? "-" + options.id : "");
    report.files.push_back(write_file(draft, name, state, files[i], i == 0 ? texts : Texts(), options));
    report.bytes += report.files.back().length;
  }
  return report;
}

void commit_safetensors(Draft& draft, const std::string& id, const std::vector<SaveReport>& reports) {
  format::Manifest manifest;
  manifest.id = id;
  for (const SaveReport& report : reports) {
    manifest.files.insert(manifest.files.end(), report.files.begin(), report.files.end());
  }
  std::ranges::sort(manifest.files, {}, &format::ManifestFile::name);
  const std::string bytes = format::encode_manifest(manifest);
  const auto writer = draft.create(format::kManifestName, static_cast<int64_t>(bytes.size()));
  writer->write(0, std::as_bytes(std::span(bytes)));
  writer->finish();
  draft.commit(format::kManifestName);
}

}  // namespace sherd::detail
