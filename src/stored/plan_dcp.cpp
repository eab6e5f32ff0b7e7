#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "format/archive.h"
#include "plan/save.h"
#include "stored/chosen.h"
#include "stored/commit_dcp.h"
#include "stored/copy_elements.h"

namespace sherd::stored {
namespace {

// Items begin at such places, so that the elements of every tensor do.
constexpr int64_t kAlignment = 64;

struct Chunk {
  size_t rank = 0;
  Box box;
};

std::vector<std::vector<Chunk>> chunks_of(const Chosen& chosen, const RankLayouts& layouts,
                                          const std::string& operation) {
  std::vector<Layout> all;
  all.reserve(chosen.tensors.size());
  std::vector<plan::SavedTensor> saved;
  for (const ChosenTensor& tensor : chosen.tensors) {
    const Dims& size = tensor.content->size;
    all.push_back(
        {layouts.mesh, size, checked_placements(operation, layouts.mesh, size, layouts.placements(tensor.name, size))});
    saved.push_back({size_of(tensor.content->dtype), plan::LaidOutTensor{&all.back()}});
  }
  const plan::SavePlan plan = plan::plan_save(saved, layouts.mesh.size());
  std::vector<std::vector<Chunk>> chunks(chosen.tensors.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const plan::WrittenChunks& written = plan.tensors[i];
    const auto ndim = static_cast<std::ptrdiff_t>(chosen.tensors[i].content->size.size());
    auto numbers = written.numbers.begin();
    for (const int32_t writer : written.writers) {
      chunks[i].push_back(
          {static_cast<size_t>(writer), {{numbers, numbers + ndim}, {numbers + ndim, numbers + 2 * ndim}}});
      numbers += 2 * ndim;
    }
  }
  return chunks;
}

// As they lie: what was in a checkpoint's n-th file comes into the n-th one.
std::vector<std::vector<Chunk>> chunks_of(const Chosen& chosen) {
  std::vector<std::vector<Chunk>> chunks(chosen.tensors.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const format::TensorEntry& tensor = *chosen.tensors[i].content;
    for (size_t chunk = 0; chunk < tensor.chunk_count(); ++chunk) {
      chunks[i].push_back({static_cast<size_t>(std::max(tensor.places[chunk].file, 0)), tensor.box(chunk)});
    }
  }
  return chunks;
}

// What lies beside a dict has to be of kinds that may stand in metadata.
bool is_plain(const format::Value& value) {
  bool plain = true;
  format::changed(value, [&](const format::Value& part) -> std::optional<format::Value> {
    plain &= part.as<format::Object>() == nullptr && part.as<format::Global>() == nullptr &&
             part.as<format::TensorRef>() == nullptr;
    return std::nullopt;
  });
  return plain;
}

void take_kinds(const Chosen& chosen, format::Metadata& metadata) {
  for (format::OrderedPlace place : chosen.ordered) {
    place.beside = kept_beside(place, is_plain);
    metadata.ordered.push_back(std::move(place));
  }
  std::map<size_t, std::vector<format::SharedView>> memories;
  for (const ChosenTensor& tensor : chosen.tensors) {
    if (!tensor.shared) continue;
    memories[tensor.shared->memory].push_back({tensor.name, tensor.shared->offset, tensor.shared->strides});
  }
  for (auto& [number, views] : memories) {
    if (views.size() > 1) metadata.shared.push_back(std::move(views));
  }
}

}  // namespace

DcpPlan plan_dcp(const Chosen& chosen, const std::optional<RankLayouts>& layouts, const Storage& storage,
                 const std::string& path, const std::string& id, const std::string& operation) {
  DcpPlan plan;
  plan.metadata.checkpoint_id = path;
  plan.metadata.save_id = id;
  plan.metadata.paths.emplace();
  plan.metadata.dicts = chosen.dicts;
  take_kinds(chosen, plan.metadata);
  const auto chunks = layouts ? chunks_of(chosen, *layouts, operation) : chunks_of(chosen);
  size_t ranks = layouts ? static_cast<size_t>(layouts->mesh.size()) : 1;
  for (const auto& each : chunks) {
    for (const Chunk& chunk : each) ranks = std::max(ranks, chunk.rank + 1);
  }
  plan.files.resize(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    plan.files[rank].name = distcp_name(storage, id, static_cast<int64_t>(rank));
    plan.metadata.files.push_back(plan.files[rank].name);
  }
  // Files have tensors first; the metadata keep the state's order.
  std::map<size_t, std::pair<std::vector<format::PathPart>, format::MetadataEntry>> in_order;
  for (size_t i = 0; i < chosen.tensors.size(); ++i) {
    const ChosenTensor& tensor = chosen.tensors[i];
    format::TensorEntry entry = *tensor.content;
    entry.numbers.clear();
    entry.places.clear();
    for (const Chunk& chunk : chunks[i]) {
      const format::TensorItem item{entry.dtype, chunk.box.size, row_major(chunk.box.size)};
      FilePlan& file = plan.files[chunk.rank];
      file.align(kAlignment);
      const int64_t start = file.size;
      file.add(format::head_of(item));
      file.add(tensor.elements(chunk.box));
      file.add(LateText{format::lengths_of(item).tail, 1,
                        [item](std::span<const uint32_t> crcs) { return format::tail_of(item, crcs.back()); }});
      entry.add(chunk.box.offset, chunk.box.size, {static_cast<int32_t>(chunk.rank), -1, start, file.size - start});
    }
    in_order[tensor.order] = {tensor.path, {tensor.name, std::move(entry)}};
  }
  for (const ChosenObject& object : chosen.objects) {
    FilePlan& file = plan.files.front();
    file.align(kAlignment);
    const format::Place place{0, -1, file.size, static_cast<int64_t>(object.archive.size())};
    in_order[object.order] = {object.path, {object.name, format::BytesEntry{place}}};
    file.add(object.archive);
  }
  for (auto& [order, placed] : in_order) {
    plan.metadata.paths->emplace_back(placed.second.name, std::move(placed.first));
    plan.metadata.entries.push_back(std::move(placed.second));
  }
  return plan;
}

}  // namespace sherd::stored
