#include "tensor/chunk_table.h"

#include <c10/util/hash.h>
#include <fmt/format.h>

#include "comm/errors.h"

namespace sherd::detail {

size_t ChunkTable::Hash::operator()(const Dims& dims) const { return c10::get_hash(dims); }

ChunkTable::ChunkTable(const std::vector<ChunkMetadata>& chunks) {
  places_.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) places_.emplace(chunks[i].offsets, i);
}

std::optional<size_t> ChunkTable::find(const Dims& offsets) const {
  const auto found = places_.find(offsets);
  return found != places_.end() ? std::optional(found->second) : std::nullopt;
}

size_t ChunkTable::find(const ShardIndex& index, const std::vector<ChunkMetadata>& chunks,
                        const std::optional<Dims>& size) const {
  const bool hinted = index.hint && *index.hint < chunks.size();
  if (hinted && (!index.offsets || chunks[*index.hint].offsets == *index.offsets)) return *index.hint;
  if (index.offsets) {
    if (const auto found = find(*index.offsets)) return *found;
  } else if (chunks.size() == 1 && size && chunks[0].sizes == *size) {
    return 0;
  }
  ErrorText text("shard", index.offsets ? "this rank has no shard at these offsets" : "which shard is not said");
  text.fact("tensor", fmt::format("\"{}\"", index.name));
  if (index.offsets) text.fact("offsets", to_string(*index.offsets));
  if (index.hint) text.fact("hint", std::to_string(*index.hint));
  throw_value_error(
      text.fact("shards here", text_of(chunks)).help("ShardIndex{name, offsets} with offsets of chunk_list()"));
}

std::string text_of(const std::vector<ChunkMetadata>& chunks) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < chunks.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + to_string(chunks[i].box());
  if (chunks.size() > kShown) text += fmt::format(" and {} more", chunks.size() - kShown);
  return text.empty() ? "none" : text;
}

}  // namespace sherd::detail
