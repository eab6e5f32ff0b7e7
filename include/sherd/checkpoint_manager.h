#pragma once
// Checkpoints of a run in one folder: which are kept, and which one to go on from.
//
//   sherd::CheckpointManager checkpoints("runs/gpt", {.keep_last = 3, .keep_every = 1000});
//   int64_t step = checkpoints.resume(model, optimizer).value_or(0);
//   ...
//   checkpoints.save_async(step, model, optimizer);

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sherd/checkpoint.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace sherd {

struct CheckpointManagerOptions {
  /// The newest so many stay; 0: all. What was saved last is the newest, whatever its step. Damaged ones that
  /// load_latest met do not count, and stay until they are older than all of these.
  int64_t keep_last = 0;
  /// And those whose step is a multiple of this; 0: no others.
  int64_t keep_every = 0;
  /// Each save on the one before it that is not damaged: blocks that did not change are not written again. Those whose
  /// blocks a kept one uses stay.
  bool incremental = false;
  std::optional<Group> group = {};
  std::shared_ptr<Storage> storage = {};
  /// As SaveOptions::give_up_after.
  std::optional<std::chrono::milliseconds> give_up_after = {};
};

/// One per rank, made and called by all ranks of the group alike. Checkpoints are the folders `step-<number>`.
class CheckpointManager {
 public:
  explicit CheckpointManager(std::string folder, CheckpointManagerOptions options = {});

  /// A step that is there is replaced. Others that stand on it are first written anew, in full, by the first rank;
  /// those that are damaged cannot be, and are named in warnings(). The first save removes drafts that saves and
  /// removals of steps left behind: only one program may save to the folder at a time. Others may read there meanwhile.
  SaveResult save(int64_t step, const StateDict& state);
  /// Older ones are removed when the next save begins, or by wait(): only then is this one known to be there.
  SaveFuture save_async(int64_t step, const StateDict& state);
  /// Returns when no save is under way; throws what the last one threw.
  void wait();

  /// The steps that are there, ascending, damaged ones among them.
  std::vector<int64_t> steps() const;
  std::string path_of(int64_t step) const;

  /// Fills the state from the highest step that is not damaged, and returns its number; nothing where there are none
  /// at all. Those that are skipped are named in warnings(), with what is wrong. Throws c10::Error where all are
  /// damaged, and then the state may be filled in part; where a storage fails, which does not make a checkpoint a
  /// damaged one; and for a state that does not fit. What it returns from has filled all that is new in the state:
  /// nothing of a skipped one stays. Changes nothing in the folder.
  std::optional<int64_t> load_latest(StateDict& state, const LoadOptions& options = {});
  /// What was skipped; what stands on a step that was saved again and is damaged; and what was not removed after a
  /// save, because a storage failed. The first rank warns of each with TORCH_WARN, too.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The same for a module and its optimizer: {"model": ..., "optimizer": ..., "step": ...}.
  SaveResult save(int64_t step, const torch::nn::Module& module, torch::optim::Optimizer& optimizer);
  SaveFuture save_async(int64_t step, const torch::nn::Module& module, torch::optim::Optimizer& optimizer);
  std::optional<int64_t> resume(torch::nn::Module& module, torch::optim::Optimizer& optimizer);
  /// For the holders that torch's modules are made as.
  template <class Holder>
  requires requires(Holder& holder) { *holder; }
  SaveResult save(int64_t step, Holder& holder, torch::optim::Optimizer& optimizer) {
    return save(step, *holder, optimizer);
  }
  template <class Holder>
  requires requires(Holder& holder) { *holder; }
  SaveFuture save_async(int64_t step, Holder& holder, torch::optim::Optimizer& optimizer) {
    return save_async(step, *holder, optimizer);
  }
  template <class Holder>
  requires requires(Holder& holder) { *holder; }
  std::optional<int64_t> resume(Holder& holder, torch::optim::Optimizer& optimizer) {
    return resume(*holder, optimizer);
  }

 private:
  void free_step(int64_t step);
  void clear_drafts();
  void warn(std::string text);
  void saved(int64_t step);
  void remove_old();
  std::string base_for(int64_t step) const;

  std::string folder_;
  CheckpointManagerOptions options_;
  std::shared_ptr<Storage> storage_;
  Group group_;
  SaveFuture last_;
  std::optional<int64_t> last_step_;
  std::vector<int64_t> saved_;  // the last one last
  std::set<int64_t> damaged_;   // as load_latest and save found them
  bool has_saved_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace sherd
