#include "stored/merge_metadata.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "sherd/error.h"

namespace sherd::stored {
namespace {

using format::MetadataEntry;
using format::TensorEntry;

bool is_whole(const TensorEntry& entry) {
  for (size_t i = 0; i < entry.chunk_count(); ++i) {
    if (entry.box(i).size == entry.size) return true;
  }
  return false;
}

class Merger {
 public:
  explicit Merger(std::string operation) : operation_(std::move(operation)) {}

  void add_files(const format::Metadata& metadata) {
    for (const std::string& file : metadata.files) merged_.metadata.file_number(file);
  }

  void add(RankMetadata rank) {
    format::Metadata& into = merged_.metadata;
    const bool is_first = known_.empty();
    move_places(rank.metadata);
    for (MetadataEntry& entry : rank.metadata.entries) {
      const auto [found, is_new] = known_.try_emplace(entry.name, into.entries.size());
      if (is_new) {
        into.entries.push_back(std::move(entry));
      } else if (!take_chunks(found->second, entry)) {
        merged_.others.push_back({rank.rank, std::move(entry)});
      }
    }
    if (is_first) {
      into.dicts = std::move(rank.metadata.dicts);
      into.ordered = std::move(rank.metadata.ordered);
      into.other_planner_data = std::move(rank.metadata.other_planner_data);
      into.checkpoint_id = std::move(rank.metadata.checkpoint_id);
      into.save_id = std::move(rank.metadata.save_id);
      into.version = std::move(rank.metadata.version);
      if (rank.metadata.paths) into.paths.emplace();
    }
    if (!into.paths || !rank.metadata.paths) return;
    for (auto& path : *rank.metadata.paths) {
      if (with_path_.insert(path.first).second) into.paths->push_back(std::move(path));
    }
  }

  MergedMetadata take() && { return std::move(merged_); }

 private:
  // To the numbers that files and transforms have among those of all ranks.
  void move_places(format::Metadata& metadata) {
    format::Metadata& into = merged_.metadata;
    std::vector<int32_t> files;
    for (const std::string& file : metadata.files) files.push_back(into.file_number(file));
    const auto transforms = static_cast<int32_t>(into.transforms.size());
    into.transforms.insert(into.transforms.end(), metadata.transforms.begin(), metadata.transforms.end());
    const auto move = [&](format::Place& place) {
      if (place.file >= 0) place.file = files[static_cast<size_t>(place.file)];
      if (place.transforms >= 0) place.transforms += transforms;
    };
    for (MetadataEntry& entry : metadata.entries) {
      if (auto* tensor = std::get_if<TensorEntry>(&entry.content)) {
        for (format::Place& place : tensor->places) move(place);
      } else {
        move(std::get<format::BytesEntry>(entry.content).place);
      }
    }
  }

  // False where the entry is a rank's own.
  bool take_chunks(size_t place, const MetadataEntry& entry) {
    auto* target = std::get_if<TensorEntry>(&merged_.metadata.entries[place].content);
    const auto* source = std::get_if<TensorEntry>(&entry.content);
    if (target == nullptr || source == nullptr || is_whole(*target)) return false;
    if (target->size != source->size || target->dtype != source->dtype) {
      throw std::invalid_argument(ErrorText(operation_, "the ranks' metadata tell different things of one tensor")
                                      .fact("tensor", entry.name)
                                      .fact("sizes", to_string(target->size) + " and " + to_string(source->size))
                                      .help("files of one save alone in the folder"));
    }
    if (is_whole(*source)) return false;
    std::set<Chunk>& chunks = chunks_[place];
    if (chunks.empty()) {
      for (size_t i = 0; i < target->chunk_count(); ++i) chunks.insert(chunk_of(*target, i));
    }
    for (size_t i = 0; i < source->chunk_count(); ++i) {
      Chunk chunk = chunk_of(*source, i);
      if (!chunks.insert(chunk).second) continue;
      target->add(chunk.first, chunk.second, source->places[i]);
    }
    return true;
  }

  using Chunk = std::pair<Dims, Dims>;
  static Chunk chunk_of(const TensorEntry& entry, size_t i) {
    Box box = entry.box(i);
    return {std::move(box.offset), std::move(box.size)};
  }

  std::string operation_;
  MergedMetadata merged_;
  std::unordered_map<std::string, size_t> known_;
  std::set<std::string> with_path_;
  std::map<size_t, std::set<Chunk>> chunks_;  // of entries that have chunks of several ranks
};

}  // namespace

MergedMetadata merge_metadata(std::vector<RankMetadata> ranks, int64_t rank, const std::string& operation) {
  Merger merger(operation);
  for (const RankMetadata& other : ranks) merger.add_files(other.metadata);
  const auto own = std::find_if(ranks.begin(), ranks.end(), [&](const auto& other) { return other.rank == rank; });
  if (own != ranks.end()) std::rotate(ranks.begin(), own, own + 1);
  for (RankMetadata& other : ranks) merger.add(std::move(other));
  return std::move(merger).take();
}

}  // namespace sherd::stored
