#pragma once
// One save, from the state to the checkpoint in its place.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/items_to_save.h"
#include "checkpoint/save_report.h"
#include "checkpoint/saved_state.h"
#include "checkpoint/tell_all.h"
#include "sherd/checkpoint.h"
#include "stored/base_blocks.h"

namespace sherd::detail {

struct SavePlanOptions {
  std::function<void()> check = {};  // before anything; what it throws is thrown on every rank
  at::Tensor* memory = nullptr;      // what this rank is to write is copied there; made larger where it is too small
};

/// Returns when no save of this rank goes on in the background, however it ended; at once where that is what calls it.
/// Before drafts are looked for: that of a save under way must not be taken for one that was left behind.
void await_saves();

class Saver {
 public:
  Saver(const Group& group, std::string path, SaveOptions options);

  /// Agrees with the other ranks on who writes what, and opens the draft. Throws on every rank or on none, and leaves
  /// no draft then.
  void plan(const StateDict& state, const SavePlanOptions& options = {});
  /// Writes it, and puts the checkpoint in its place. `group` has the same ranks as the one that planned. Throws on
  /// every rank or on none; a save that failed leaves no draft. A rank that is at work is waited for, however long.
  SaveResult write(const Group& group);

  CheckpointProgress progress() const { return {done_.load(), total_.load()}; }

 private:
  std::string open_draft();
  void check_options() const;
  bool is_one_file() const;
  void collect(const std::vector<SavedLeaf>& leaves);
  void snapshot(at::Tensor& memory);
  SaveReport write_data(const StillWanted& wanted);
  void check_files(const std::vector<SaveReport>& reports) const;
  void commit(const std::vector<SaveReport>& reports);
  void commit_distcp(const std::vector<SaveReport>& reports);
  int64_t make_one_file(const StillWanted& wanted);
  void discard_on_all(const Group& group) noexcept;

  Group group_;
  std::string target_;  // what the caller asked for
  SaveOptions options_;
  CheckpointFormat format_;
  std::string path_;  // the folder that is written: another one where the target is one file
  std::shared_ptr<Storage> storage_;
  std::string id_;
  std::unique_ptr<Draft> draft_;
  std::unique_ptr<stored::BaseBlocks> base_;
  std::shared_ptr<const AgreedState> state_;
  std::vector<ItemToSave> items_;
  std::vector<ObjectToSave> objects_;
  std::vector<std::vector<format::SharedView>> shared_;  // for formats that have storages
  std::vector<std::vector<format::PathPart>> dicts_;     // of all ranks' states, that have ints for keys
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> total_{0};
};

}  // namespace sherd::detail
