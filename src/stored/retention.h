#pragma once
// Checkpoints of a run in one folder, as CheckpointManager keeps them: `step-<number>`.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/storage.h"

namespace sherd::stored {

std::string step_name(int64_t step);
/// Nothing where the name is none of a step.
std::optional<int64_t> step_of(std::string_view name);
/// Those in a folder, ascending.
std::vector<int64_t> steps_in(const Storage& storage, const std::string& folder);

/// The checkpoints whose blocks one uses: none where it has no manifest, nothing where the manifest is damaged. Throws
/// std::runtime_error where it cannot be read.
std::optional<std::vector<std::string>> bases_of(const Storage& storage, const std::string& path);

/// The steps of a folder that use blocks of this one, descending. Throws as bases_of.
std::vector<int64_t> steps_on(const Storage& storage, const std::string& folder, int64_t step);

struct Retention {
  int64_t keep_last = 0;   // the newest so many
  int64_t keep_every = 0;  // and those whose step is a multiple of this; 0: no others
  /// Steps in the order they were saved: the last one is the newest of all, whatever its number. Others are older, by
  /// their numbers.
  std::vector<int64_t> saved = {};
  /// These do not count as the newest, nor do those whose manifest is damaged. They go when they are older than all of
  /// the newest: before, somebody may repair them.
  std::set<int64_t> damaged = {};
};
/// The steps of a folder that go: neither kept, nor used by one that is; ascending. The last one goes first: what is
/// left when the removal is stopped in between stands on nothing that is gone. Throws as bases_of: where it is not
/// known what is used, nothing may go.
std::vector<int64_t> steps_to_remove(const Storage& storage, const std::string& folder, const Retention& retention);

/// The folder that ranks write together before it becomes the one file that was asked for.
std::string parts_of(const std::string& file);
/// Such folders in a folder, by their paths: of saves under way, or left behind by one that was stopped.
std::vector<std::string> parts_in(const Storage& storage, const std::string& folder);

/// Removes the one of a file, where a save left it behind. Throws std::invalid_argument where the folder is none that a
/// save has made.
void discard_parts(const std::string& operation, Storage& storage, const std::string& file);

/// So that a crash in the middle leaves no half of a checkpoint that could be taken for one.
void remove_checkpoint(Storage& storage, const std::string& path);

}  // namespace sherd::stored
