#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <stdexcept>

#include "checkpoint/load.h"
#include "checkpoint/optimizer_format.h"
#include "checkpoint/placing.h"
#include "checkpoint/saver.h"
#include "checkpoint/tell_all.h"
#include "comm/errors.h"
#include "sharded/bytes.h"
#include "sherd/checkpoint_manager.h"
#include "sherd/checkpointable.h"
#include "sherd/convert.h"
#include "sherd/damage.h"
#include "sherd/model_state.h"
#include "sherd/world.h"
#include "storage/paths.h"
#include "stored/base_blocks.h"
#include "stored/open_known.h"
#include "stored/retention.h"
#include "stored/rewrite_within.h"
#include "stored/target.h"

namespace sherd {
namespace {

constexpr std::ptrdiff_t kMostShown = 10;

// In place of a state that this rank could not make. It says why when it is asked, which ranks do where all of them
// hear of it.
class NoState final : public Stateful {
 public:
  explicit NoState(std::exception_ptr why) : why_(std::move(why)) {}
  StateDict state_dict() const override { std::rethrow_exception(why_); }
  void load_state_dict(const StateDict& /*state*/) override {}

 private:
  std::exception_ptr why_;
};

constexpr const char* kNoState = "no state";

StateDict state_of(int64_t step, const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  try {
    return {{"model", get_model_state_dict(module)},
            {"optimizer", get_optimizer_state_dict(module, optimizer)},
            {"step", step}};
  } catch (const std::exception&) {
    return {{kNoState, std::make_shared<NoState>(std::current_exception())}};
  }
}

// Steps that use blocks of one that is about to be replaced, and those that use blocks of these, are written anew
// without bases, the newest first: at any time each has what it uses. What could not be, because it is damaged, goes
// into `damaged`, by its step. `seen` are steps that are under way: manifests may name each other in a circle.
void let_stand_alone(const std::shared_ptr<Storage>& storage, const std::string& folder, int64_t step,
                     const detail::StillWanted& wanted, std::set<int64_t>& seen,
                     std::map<int64_t, std::string>& damaged) {
  seen.insert(step);
  for (const int64_t user : stored::steps_on(*storage, folder, step)) {
    if (seen.contains(user)) continue;
    let_stand_alone(storage, folder, user, wanted, seen, damaged);
    const std::string path = storage->join(folder, stored::step_name(user));
    RewriteOptions options;
    options.format = CheckpointFormat::dcp;
    options.overwrite = true;
    options.from_storage = storage;
    options.to_storage = storage;
    options.progress = [&](int64_t, int64_t) { wanted.check(); };
    options.operation = "save";
    wanted.at("writing in full " + path);
    try {
      stored::rewrite_within(stored::kBesideAModel, {path}, path, options);
    } catch (const DamagedCheckpoint& error) {
      damaged[user] = fmt::format("{} uses blocks of {}, which is saved again, and is damaged itself: {}", path,
                                  stored::step_name(step), error.what());
    }
  }
}

// The names that some of these checkpoints have and others lack, which are the same to every rank. Damaged ones, which
// fill nothing in the end, have none. Nothing where one cannot be looked at; its turn may never come, and what is wrong
// is told when it does.
using Names = std::optional<std::set<std::string>>;
Names names_of_some(const std::shared_ptr<Storage>& storage, const std::vector<std::string>& paths,
                    const stored::OpenOptions& options, const detail::StillWanted& wanted) {
  std::map<std::string, size_t> counts;
  size_t whole = 0;
  for (const std::string& path : paths) {
    wanted.check();
    wanted.at("looking at " + path);
    try {
      const auto checkpoint = stored::open_known(storage, path, options);
      for (const format::MetadataEntry& entry : checkpoint->metadata().entries) ++counts[entry.name];
      ++whole;
    } catch (const DamagedCheckpoint&) {
      continue;
    } catch (const StorageFailure&) {
      return std::nullopt;
    } catch (const std::runtime_error&) {  // files that are not there
      continue;
    }
  }
  std::set<std::string> names;
  for (const auto& [name, count] : counts) {
    if (count < whole) names.insert(name);
  }
  return names;
}

std::string encode(const Names& names) {
  detail::ByteWriter out;
  out.put(names.has_value());
  for (const std::string& name : names.value_or(std::set<std::string>())) out.put_text(name);
  return out.take();
}

Names decode_names(const std::string& told) {
  detail::ByteReader in("CheckpointManager", told);
  if (!in.get<bool>()) return std::nullopt;
  std::set<std::string> names;
  while (in.left() > 0) names.insert(in.get_text());
  return names;
}

// This rank's parts of some tensors, or of all, as they are, to be put back after others were read into them.
class KeptParts {
 public:
  KeptParts(const StateDict& state, const Names& names) {
    if (names && names->empty()) return;
    const at::NoGradGuard no_grad;
    for (const FlatLeaf& leaf : flatten_state_dict(state)) {
      if (names && !names->contains(leaf.name)) continue;
      if (const Checkpointable* own = leaf.value.checkpointable()) keep(leaf.name, *own);
      const at::Tensor* tensor = leaf.value.tensor();
      if (tensor != nullptr && tensor->defined() && !detail::has_no_memory(*tensor)) {
        keep(leaf.name, *checkpointable(*tensor));
      }
    }
  }

  void put_back() const {
    const c10::InferenceMode any_tensor;  // may be written, also those that were made so
    for (const auto& [part, copy] : parts_) part.copy_(copy);
  }

 private:
  void keep(const std::string& name, const Checkpointable& tensor) {
    for (const ChunkMetadata& chunk : tensor.chunk_list()) {
      at::Tensor part = tensor.shard({name, chunk.offsets, {}});
      at::Tensor copy = part.clone();
      parts_.emplace_back(std::move(part), std::move(copy));
    }
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> parts_;
};

}  // namespace

CheckpointManager::CheckpointManager(std::string folder, CheckpointManagerOptions options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      storage_(options_.storage ? options_.storage : disk_storage()),
      group_(options_.group ? *options_.group : current_world().group()) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  if (options_.keep_last < 0 || options_.keep_every < 0) {
    detail::throw_value_error(ErrorText("CheckpointManager", "a number of checkpoints to keep is negative")
                                  .fact("keep_last", fmt::to_string(options_.keep_last))
                                  .fact("keep_every", fmt::to_string(options_.keep_every))
                                  .help("{.keep_last = 3, .keep_every = 1000}"));
  }
}

std::string CheckpointManager::path_of(int64_t step) const { return storage_->join(folder_, stored::step_name(step)); }

std::vector<int64_t> CheckpointManager::steps() const { return stored::steps_in(*storage_, folder_); }

// The same on all ranks: the first one looks, since others may see a folder change while it removes. A damaged one may
// have other bytes than its digests say, and what stands on it would be damaged, too.
std::string CheckpointManager::base_for(int64_t step) const {
  if (!options_.incremental) return {};
  const auto answers = detail::tell_all("CheckpointManager", group_, [&]() -> std::string {
    if (group_.rank() != 0) return {};
    const auto there = steps();
    for (auto at = there.rbegin(); at != there.rend(); ++at) {
      if (*at < step && !damaged_.contains(*at) && stored::find_manifest(*storage_, path_of(*at))) return path_of(*at);
    }
    return {};
  });
  return answers.front();
}

// What saves and removals left behind that did not come to their end. Only who saves knows that nobody else does: a
// program that reads a run must not take the draft of one that goes on.
void CheckpointManager::clear_drafts() {
  std::function<std::string(const detail::StillWanted&)> work;
  if (group_.rank() == 0) {
    work = [&](const detail::StillWanted& wanted) -> std::string {
      for (const DraftName& draft : storage_->drafts_in(folder_)) {
        if (!stored::step_of(name_of(draft.folder))) continue;
        wanted.check();
        wanted.at("removing what was left of " + draft.folder);
        stored::discard_stale_drafts(*storage_, draft.folder);
      }
      return {};
    };
  }
  detail::work_and_tell_all("CheckpointManager", group_, work, options_.give_up_after);
}

// All ranks have it in their list, and one of them says it.
void CheckpointManager::warn(std::string text) {
  if (group_.rank() == 0) TORCH_WARN("CheckpointManager: ", text);
  warnings_.push_back(std::move(text));
}

// Called by all ranks before a step is saved.
void CheckpointManager::free_step(int64_t step) {
  constexpr const char* kOperation = "CheckpointManager";
  detail::await_saves();  // other managers of this program may save to the folder, too
  // A storage that does not answer is missed here: only work that goes on may take its time.
  const auto is_there = detail::tell_all(kOperation, group_, [&]() -> std::string {
    return group_.rank() == 0 && storage_->exists(path_of(step)) ? "yes" : "";
  });
  if (!has_saved_) clear_drafts();
  has_saved_ = true;
  if (is_there.front().empty()) return;
  std::function<std::string(const detail::StillWanted&)> work;
  if (group_.rank() == 0) {
    work = [&](const detail::StillWanted& wanted) {
      std::set<int64_t> seen;
      std::map<int64_t, std::string> damaged;
      let_stand_alone(storage_, folder_, step, wanted, seen, damaged);
      detail::ByteWriter out;
      out.put(static_cast<uint64_t>(damaged.size()));
      for (const auto& [user, warning] : damaged) {
        out.put(user);
        out.put_text(warning);
      }
      return out.take();
    };
  }
  const auto answers = detail::work_and_tell_all(kOperation, group_, work, options_.give_up_after);
  detail::ByteReader in(kOperation, answers.front());
  for (auto count = in.get<uint64_t>(); count > 0; --count) {
    damaged_.insert(in.get<int64_t>());
    warn(in.get_text());
  }
}

SaveResult CheckpointManager::save(int64_t step, const StateDict& state) {
  wait();
  free_step(step);
  const SaveResult result = sherd::save(
      state, path_of(step),
      {.group = group_, .storage = storage_, .base = base_for(step), .give_up_after = options_.give_up_after});
  saved(step);
  return result;
}

SaveFuture CheckpointManager::save_async(int64_t step, const StateDict& state) {
  wait();
  free_step(step);
  last_ = sherd::save_async(
      state, path_of(step),
      {.group = group_, .storage = storage_, .base = base_for(step), .give_up_after = options_.give_up_after});
  last_step_ = step;
  return last_;
}

void CheckpointManager::wait() {
  if (!last_step_) return;
  const int64_t step = *last_step_;
  last_step_.reset();
  last_.wait();
  saved(step);
}

void CheckpointManager::saved(int64_t step) {
  damaged_.erase(step);
  std::erase(saved_, step);
  saved_.push_back(step);
  remove_old();
}

// The step is saved already: what cannot be removed now is told, and removed after the next one.
void CheckpointManager::remove_old() {
  if (options_.keep_last == 0) return;
  std::function<std::string(const detail::StillWanted&)> work;
  if (group_.rank() == 0) {
    work = [&](const detail::StillWanted& wanted) -> std::string {
      std::string what = fmt::format("nothing is removed from {}", folder_);
      try {
        const auto steps = stored::steps_to_remove(
            *storage_, folder_,
            {.keep_last = options_.keep_last, .keep_every = options_.keep_every, .saved = saved_, .damaged = damaged_});
        for (const int64_t step : std::views::reverse(steps)) {
          what = path_of(step) + " is not removed";
          wanted.at("removing " + path_of(step));
          stored::remove_checkpoint(*storage_, path_of(step));
        }
      } catch (const std::runtime_error& error) {
        return fmt::format("{}: {}", what, error.what());
      }
      return {};
    };
  }
  const auto answers = detail::work_and_tell_all("CheckpointManager", group_, work, options_.give_up_after);
  if (!answers.front().empty()) warn(answers.front());
}

std::optional<int64_t> CheckpointManager::load_latest(StateDict& state, const LoadOptions& options) {
  wait();
  const auto answers = detail::tell_all("CheckpointManager", group_, [&] {
    std::string text;
    if (group_.rank() != 0) return text;
    for (const int64_t step : steps()) text += fmt::format("{} ", step);
    return text;
  });
  std::vector<int64_t> there;
  const std::string& text = answers.front();
  for (size_t at = 0; at < text.size(); at = text.find(' ', at) + 1) {
    there.push_back(std::strtoll(text.c_str() + at, nullptr, 10));
  }
  LoadOptions with = options;
  with.group = group_;
  with.storage = storage_;
  if (there.empty()) return std::nullopt;
  // Only a load that is not strict goes on with a checkpoint that lacks what a damaged one has filled.
  std::optional<KeptParts> kept;
  if (!with.strict && there.size() > 1) {
    std::function<std::string(const detail::StillWanted&)> look;
    if (group_.rank() == 0) {
      look = [&](const detail::StillWanted& wanted) {
        std::vector<std::string> paths;
        for (const int64_t step : there) paths.push_back(path_of(step));
        return encode(names_of_some(storage_, paths, {.verify = with.verify}, wanted));
      };
    }
    const auto told = detail::work_and_tell_all("CheckpointManager", group_, look, options_.give_up_after);
    detail::tell_all("CheckpointManager", group_, [&] {
      kept.emplace(state, decode_names(told.front()));
      return std::string();
    });
  }
  ErrorText none("CheckpointManager", "none of the checkpoints in the folder can be loaded");
  none.fact("folder", folder_);
  for (auto step = there.rbegin(); step != there.rend(); ++step) {
    std::string damage;
    if (detail::load_unless_damaged(state, path_of(*step), with, damage)) {
      damaged_.erase(*step);
      return *step;
    }
    if (kept) kept->put_back();
    damaged_.insert(*step);
    warn(fmt::format("{} is skipped: {}", path_of(*step), damage));
    if (step - there.rbegin() < kMostShown) none.fact(stored::step_name(*step), damage);
  }
  const auto rest = static_cast<std::ptrdiff_t>(there.size()) - kMostShown;
  if (rest > 0) none.fact("and", fmt::format("{} more", rest));
  // Whoever went on as if there were none would train on what is left in the state of several.
  throw c10::Error(none.fact("state", "may be filled in part")
                       .help(fmt::format("`sherd verify {}` lists what is damaged, `sherd repair` keeps the rest; "
                                         "another folder starts anew",
                                         path_of(there.back()))),
                   nullptr);
}

SaveResult CheckpointManager::save(int64_t step, const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  return save(step, state_of(step, module, optimizer));
}

SaveFuture CheckpointManager::save_async(int64_t step, const torch::nn::Module& module,
                                         torch::optim::Optimizer& optimizer) {
  return save_async(step, state_of(step, module, optimizer));
}

std::optional<int64_t> CheckpointManager::resume(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  StateDict state = state_of(0, module, optimizer);
  const StateValue* none = state.find(kNoState);
  // Lists that grow with the steps are as long as they were saved, not as the optimizer has them now.
  if (none == nullptr && detail::format_of("CheckpointManager", optimizer).is_shared) {
    for (auto& [name, values] : *state.at("optimizer").dict()->at("state").dict()) values = StateValue();
  }
  const auto step = load_latest(state);
  if (!step && none != nullptr) none->stateful()->state_dict();  // nobody has asked for it yet: it throws
  // The module's tensors are filled already; the optimizer's numbers are not.
  if (step) set_optimizer_state_dict(module, optimizer, *state.at("optimizer").dict());
  return step;
}

}  // namespace sherd
