#pragma once
// What a rank reads of a checkpoint's tensors: found before anything is read, then read in the order of the files, many
// tensors at once, blocks that ranks of one host want by one of them.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/shared_blocks.h"
#include "sherd/checkpoint.h"
#include "stored/stored_checkpoint.h"

namespace sherd::detail {

/// Elements of a saved chunk that go into a part of a tensor here.
struct Reading {
  const format::MetadataEntry* entry;
  size_t chunk;
  Box part;  // of the saved chunk
  at::Tensor into;
  Dims at;  // in it
  std::optional<stored::ExpectedElements> expected = {};

  int64_t bytes() const { return numel(part) * into.element_size(); }
  const format::TensorEntry& tensor() const { return std::get<format::TensorEntry>(entry->content); }
  const format::Place& place() const { return tensor().places[chunk]; }
};

class Readings {
 public:
  explicit Readings(stored::StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  void add(Reading reading) { readings_.push_back(std::move(reading)); }
  /// Where all of them lie. Throws std::runtime_error where a file is missing or too short.
  void find();
  /// Fills the tensors. `progress` hears of it as it goes, where there is one. Throws DamagedCheckpoint.
  void read(const std::function<void(const CheckpointProgress&)>& progress);

  /// What this rank tells the others of the blocks that it is going to read.
  std::string offer_blocks() { return shared_.offer(wanted_blocks()); }
  /// From what all of them told, this one being `rank`.
  void share_blocks(const std::vector<std::string>& offers, size_t rank);
  void leave_blocks() noexcept { shared_.leave(); }

 private:
  void keep_last_of_tied();
  void expect_little();
  std::vector<BlockRange> wanted_blocks() const;
  std::string names_in(int32_t file, int64_t block) const;
  void read_some(std::span<const Reading> readings);

  stored::StoredCheckpoint& checkpoint_;
  SharedBlocks shared_;
  bool shares_blocks_ = false;
  std::vector<Reading> readings_;
};

}  // namespace sherd::detail
