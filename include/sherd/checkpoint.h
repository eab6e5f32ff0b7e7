#pragma once
// Saving and loading: any mesh to any mesh, in PyTorch's files (docs/checkpoint.md).
//
//   sherd::save({{"model", sherd::get_model_state_dict(*model)}, {"step", step}}, "runs/gpt/step-4000");
//
//   sherd::StateDict state{{"model", sherd::get_model_state_dict(*other)}, {"step", 0}};
//   sherd::load(state, "runs/gpt/step-4000");          // into the tensors that `other` has, however they are sharded

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sherd/checkpoint_format.h"
#include "sherd/group.h"
#include "sherd/state_dict.h"
#include "sherd/storage.h"

namespace sherd {

struct CheckpointProgress {
  int64_t bytes = 0;  // of this rank
  int64_t total = 0;
};

struct SaveOptions {
  /// The ranks that save together; all of the current world where there is none.
  std::optional<Group> group = {};
  /// Where the path is; the local disk where there is none.
  std::shared_ptr<Storage> storage = {};
  /// Whether a checkpoint that is there may be replaced. It stays until the new one is complete.
  bool overwrite = true;
  /// Another checkpoint: blocks of 1 MiB that it has already are not written again. The result needs the base to be
  /// read, and PyTorch does not read it.
  std::string base = {};
  /// By the ending of the path where it is automatic: one file in .safetensors, .pt, .pth and .bin, else a folder that
  /// torch.distributed.checkpoint reads. Ranks that write one file write a folder beside it first, which the first rank
  /// rewrites. A folder of safetensors has files for each rank, as HuggingFaceStorageReader reads them. What is no
  /// tensor is kept in safetensors as JSON.
  CheckpointFormat format = CheckpointFormat::automatic;
  /// Compress with zstd, as PyTorch's ZStandard extension does: every item of a distributed checkpoint by itself. A
  /// compressed tensor is read as a whole, whatever part of it is wanted.
  bool compress = false;
  /// Called now and then, by the thread that writes.
  std::function<void(const CheckpointProgress&)> progress = {};
  /// How long the others wait for a rank that is still writing, or that puts all in place, before they give it up and
  /// throw c10::DistBackendError: for a storage that hangs. Nothing: however long. The rank itself cannot leave a call
  /// that hangs; it throws the same once that returns. The same on every rank.
  std::optional<std::chrono::milliseconds> give_up_after = {};
};

/// What was saved, on every rank.
struct SaveResult {
  int64_t bytes = 0;          // written by all ranks
  int64_t bytes_of_rank = 0;  // by this one
  int64_t bytes_in_base = 0;  // found in the base, all ranks
};

/// Writes one checkpoint together with the other ranks of the group, each tensor's every element once. The ranks give
/// states of the same keys, or different ones (stages of a pipeline): where a key is on several ranks, its tensors are
/// parts of one. Objects that are no tensors, and plain tensors, are taken to be equal on all ranks that have them.
/// When it returns the checkpoint is on disk and at its place on every rank; when it throws, on every rank, what was
/// there before is untouched. Ranks wait for one that is still writing, however long unless the options say otherwise;
/// after the timeout it says so in the log (SHERD_LOG). For one that is gone they wait the world's timeout at most.
/// Throws c10::ValueError for states that cannot be saved, c10::Error where the storage fails.
SaveResult save(const StateDict& state, const std::string& path, const SaveOptions& options = {});

/// A save under way.
class SaveFuture {
 public:
  SaveFuture() = default;
  /// Throws what the save threw.
  SaveResult wait();
  bool ready() const;
  CheckpointProgress progress() const;

 private:
  friend SaveFuture save_async(const StateDict& state, const std::string& path, const SaveOptions& options);
  struct State;
  std::shared_ptr<State> state_;
};

/// The same in the background. Returns when a copy of the state is made: what is saved does not change any more. Where
/// the last save_async of the group is not over, waits for it first, and throws what it threw unless somebody has seen
/// it. Throws on every rank or on none, also where one has no memory for the copy. All ranks call it in the same order.
/// Where the group has no background (Group::has_background), the save is over when it returns.
SaveFuture save_async(const StateDict& state, const std::string& path, const SaveOptions& options = {});

struct LoadOptions {
  std::optional<Group> group = {};
  std::shared_ptr<Storage> storage = {};
  /// Keys of the state that the checkpoint lacks are an error; if not strict, they keep their values.
  bool strict = true;
  /// Compare digests of what is read. Reads whole blocks of 1 MiB.
  bool verify = true;
  std::function<void(const CheckpointProgress&)> progress = {};
};

struct LoadResult {
  std::vector<std::string> missing;     // keys of the state that the checkpoint lacks
  std::vector<std::string> unexpected;  // keys of the checkpoint that the state does not ask for
  int64_t bytes = 0;                    // read by this rank
};

/// Fills the state from a checkpoint, whatever mesh it was saved on: tensors in place, each rank reading the byte
/// ranges it holds, converted to the tensor's dtype; other values are replaced. Everything is checked before the first
/// byte is written: keys, shapes, that the checkpoint covers what is asked for, that files are there and long enough.
/// Ranks wait for one that is still reading as save does for one that writes. Throws on every rank or on none:
/// c10::ValueError for a state that does not fit, c10::Error for files that are missing or damaged; where damage is
/// found while reading, tensors may have been filled in part.
LoadResult load(StateDict& state, const std::string& path, const LoadOptions& options = {});

/// The whole checkpoint, without a state to fill: plain tensors on the CPU. Names: the keys to load (as flattened) or
/// prefixes of them; none: all. Each rank reads for itself.
StateDict load_state_dict(const std::string& path, const std::vector<std::string>& names = {},
                          const LoadOptions& options = {});

}  // namespace sherd
