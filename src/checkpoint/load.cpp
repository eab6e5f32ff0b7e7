#include "checkpoint/load.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "checkpoint/dtypes.h"
#include "checkpoint/stored_checkpoint.h"
#include "checkpoint/tell_all.h"
#include "comm/errors.h"
#include "sherd/checkpoint.h"
#include "sherd/world.h"
#include "tensor/boxes_meta.h"

namespace sherd {
namespace {

using detail::StoredCheckpoint;

constexpr const char* kOperation = "load";
constexpr size_t kMostShown = 10;

// Elements of a saved chunk that go into a part of a tensor here.
struct Reading {
  const format::MetadataEntry* entry;
  size_t chunk;
  Box part;  // of the saved chunk
  at::Tensor into;
};

// The common part of a chunk that is wanted and one that was saved, in the latter's coordinates and in the former's.
struct Common {
  Box in_saved;
  Box in_wanted;
};
std::optional<Common> common_part(const Box& wanted, const format::TensorEntry& entry, size_t chunk) {
  const auto offsets = entry.offsets(chunk);
  const auto sizes = entry.sizes(chunk);
  // Most of a large tensor's chunks have nothing in common with what a rank holds.
  for (size_t d = 0; d < offsets.size(); ++d) {
    if (offsets[d] >= wanted.offset[d] + wanted.size[d] || wanted.offset[d] >= offsets[d] + sizes[d])
      return std::nullopt;
  }
  const auto both = intersect(wanted, entry.box(chunk));
  if (!both) return std::nullopt;
  Common common{*both, *both};
  for (size_t d = 0; d < offsets.size(); ++d) {
    common.in_saved.offset[d] -= offsets[d];
    common.in_wanted.offset[d] -= wanted.offset[d];
  }
  return common;
}

// Everything that does not fit is said at once: people mend a list quicker than one line after the other.
class Faults {
 public:
  void add(std::string name, std::string fault) { faults_.emplace_back(std::move(name), std::move(fault)); }
  void raise(const std::string& path, const std::string& help) const {
    if (faults_.empty()) return;
    ErrorText text(kOperation, fmt::format("the state does not fit the checkpoint in {} {}", faults_.size(),
                                           faults_.size() == 1 ? "key" : "keys"));
    text.fact("checkpoint", path);
    for (size_t i = 0; i < std::min(faults_.size(), kMostShown); ++i) text.fact(faults_[i].first, faults_[i].second);
    if (faults_.size() > kMostShown) text.fact("and", fmt::format("{} more", faults_.size() - kMostShown));
    detail::throw_value_error(text.help(help));
  }

 private:
  std::vector<std::pair<std::string, std::string>> faults_;
};

class Loader {
 public:
  Loader(const LoadOptions& options, std::string path)
      : options_(options), path_(std::move(path)), storage_(options.storage ? options.storage : disk_storage()) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  }

  void open() {
    checkpoint_ = detail::open_checkpoint(storage_, path_, options_.verify);
    for (const format::MetadataEntry& entry : checkpoint_->metadata().entries) entries_[entry.name] = &entry;
  }
  const format::Metadata& metadata() const { return checkpoint_->metadata(); }

  /// Finds what is to be read, and everything that keeps it from being read, before anything is.
  void plan(std::vector<FlatLeaf> leaves) {
    leaves_ = std::move(leaves);
    Faults faults;
    for (FlatLeaf& leaf : leaves_) {
      const auto found = entries_.find(leaf.name);
      if (found == entries_.end()) {
        if (!is_empty(leaf.value)) result_.missing.push_back(leaf.name);
        continue;
      }
      asked_.insert(found->second);
      try {
        plan_leaf(leaf, *found->second);
      } catch (const c10::ValueError& error) {
        faults.add(leaf.name, detail::message_of(error));
      }
    }
    for (const format::MetadataEntry& entry : metadata().entries) {
      if (!asked_.contains(&entry)) result_.unexpected.push_back(entry.name);
    }
    faults.raise(path_, "tensors of the checkpoint's sizes; sherd::load_state_dict(path) shows what is there");
    if (options_.strict) raise_missing();
    for (const Reading& reading : readings_) {
      checkpoint_->check_file(place_of(reading), reading.entry->name);
    }
    for (const Object& object : objects_) checkpoint_->check_file(object.place, leaves_[object.leaf].name);
    // As they lie in the files.
    std::stable_sort(readings_.begin(), readings_.end(), [](const Reading& a, const Reading& b) {
      const format::Place& x = place_of(a);
      const format::Place& y = place_of(b);
      return std::pair(x.file, x.offset) < std::pair(y.file, y.offset);
    });
  }

  void read() {
    const at::NoGradGuard no_grad;
    int64_t total = 0;
    for (const Reading& reading : readings_) total += static_cast<int64_t>(reading.into.nbytes());
    int64_t done = 0;
    detail::StoredElements elements;
    const Reading* last = nullptr;
    for (const Reading& reading : readings_) {
      const std::string reader = fmt::format("tensor {}", reading.entry->name);
      const bool same = last != nullptr && last->entry == reading.entry && last->chunk == reading.chunk;
      if (!same)
        elements = checkpoint_->locate(std::get<format::TensorEntry>(reading.entry->content), reading.chunk, reader);
      last = &reading;
      detail::read_box(elements, reading.part, reading.into, options_.verify, reader);
      done += static_cast<int64_t>(reading.into.nbytes());
      if (options_.progress) options_.progress({done, total});
    }
    for (const Object& object : objects_) {
      leaves_[object.leaf].value =
          checkpoint_->object(object.place, fmt::format("object {}", leaves_[object.leaf].name));
    }
    result_.bytes = checkpoint_->bytes_read();
  }

  /// Objects get into the state; tensors are there already.
  void finish(StateDict& state) {
    std::vector<FlatLeaf> changed;
    for (FlatLeaf& leaf : leaves_) {
      if (asked_.empty() || entries_.contains(leaf.name)) changed.push_back(std::move(leaf));
    }
    unflatten_state_dict(changed, state);
  }

  LoadResult result() && { return std::move(result_); }

 private:
  struct Object {
    size_t leaf;
    format::Place place;
  };

  static const format::Place& place_of(const Reading& reading) {
    return std::get<format::TensorEntry>(reading.entry->content).places[reading.chunk];
  }

  // PyTorch does not keep empty dicts.
  static bool is_empty(const StateValue& value) {
    return (value.dict() != nullptr && value.dict()->empty()) || (value.list() != nullptr && value.list()->empty());
  }

  void plan_leaf(FlatLeaf& leaf, const format::MetadataEntry& entry) {
    const auto* stored = std::get_if<format::TensorEntry>(&entry.content);
    const at::Tensor* tensor = leaf.value.tensor();
    const bool wants_tensor = (tensor != nullptr && tensor->defined()) || leaf.value.checkpointable() != nullptr;
    if (stored == nullptr && wants_tensor) {
      detail::throw_value_error(ErrorText(kOperation, "an object in the checkpoint, a tensor in the state"));
    }
    if (stored == nullptr) {
      objects_.push_back(
          {static_cast<size_t>(&leaf - leaves_.data()), std::get<format::BytesEntry>(entry.content).place});
      return;
    }
    if (!wants_tensor && !leaf.value.is_none()) {
      detail::throw_value_error(ErrorText(kOperation, fmt::format("a tensor {} in the checkpoint, {} in the state",
                                                                  text_of(*stored), leaf.value.kind())));
    }
    // Nothing in particular is asked for: the whole tensor, then.
    if (!wants_tensor) leaf.value = at::empty(stored->size, at::TensorOptions(detail::to_torch(stored->dtype)));
    if (leaf.value.checkpointable() != nullptr) {
      plan_tensor(*leaf.value.checkpointable(), entry, *stored);
    } else {
      if (leaf.value.tensor()->is_meta()) {
        detail::throw_value_error(ErrorText(kOperation, "a tensor without data (meta) cannot be filled"));
      }
      plan_tensor(*checkpointable(*leaf.value.tensor()), entry, *stored);
    }
  }

  static std::string text_of(const format::TensorEntry& entry) {
    return fmt::format("{}{}", names_of(entry.dtype).text, to_string(entry.size));
  }

  void plan_tensor(const Checkpointable& tensor, const format::MetadataEntry& entry,
                   const format::TensorEntry& stored) {
    const auto wanted = tensor.chunk_list();
    if (!wanted.empty() && tensor.global_size() != stored.size) {
      detail::throw_value_error(
          ErrorText(kOperation, fmt::format("size {} in the checkpoint, {} in the state", to_string(stored.size),
                                            to_string(tensor.global_size()))));
    }
    for (const ChunkMetadata& chunk : wanted) {
      const Box box = chunk.box();
      if (numel(box) == 0) continue;
      const at::Tensor into = tensor.shard({entry.name, chunk.offsets, {}});
      int64_t covered = 0;
      std::vector<Box> parts;
      for (size_t i = 0; i < stored.chunk_count(); ++i) {
        const auto common = common_part(box, stored, i);
        if (!common) continue;
        covered += numel(common->in_wanted);
        readings_.push_back({&entry, i, common->in_saved, detail::part_of(into, common->in_wanted)});
        parts.push_back(common->in_wanted);
      }
      check_covered(box, covered, parts);
    }
  }

  static void check_covered(const Box& wanted, int64_t covered, const std::vector<Box>& parts) {
    // Chunks of a checkpoint that somebody damaged may also overlap: then the sum says nothing.
    if (covered == numel(wanted) && parts.size() <= 1) return;
    auto fault = find_tiling_fault(parts, wanted.size);
    if (!fault) return;
    for (size_t d = 0; d < wanted.offset.size(); ++d) fault->box.offset[d] += wanted.offset[d];
    const char* problem = fault->kind == TilingFault::Kind::hole
                              ? "the checkpoint has no data for the part"
                              : "the checkpoint has two chunks that overlap in the part";
    detail::throw_value_error(ErrorText(kOperation, fmt::format("{} {}", problem, to_string(fault->box))));
  }

  void raise_missing() const {
    if (result_.missing.empty()) return;
    ErrorText text(kOperation, fmt::format("the checkpoint lacks {} {} of the state", result_.missing.size(),
                                           result_.missing.size() == 1 ? "key" : "keys"));
    text.fact("checkpoint", path_);
    text.fact("missing", some(result_.missing));
    if (!result_.unexpected.empty()) text.fact("not asked for", some(result_.unexpected));
    detail::throw_value_error(text.help("LoadOptions{.strict = false} to leave these as they are"));
  }

  static std::string some(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), kMostShown); ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kMostShown) text += fmt::format(", and {} more", names.size() - kMostShown);
    return text;
  }

  const LoadOptions& options_;
  std::string path_;
  std::shared_ptr<Storage> storage_;
  std::unique_ptr<StoredCheckpoint> checkpoint_;
  std::map<std::string_view, const format::MetadataEntry*> entries_;
  std::set<const format::MetadataEntry*> asked_;
  std::vector<FlatLeaf> leaves_;
  std::vector<Reading> readings_;
  std::vector<Object> objects_;
  LoadResult result_;
};

// The first rank's complaint, and who else has one; empty where none has.
std::string told_by(const Group& group, const std::vector<std::string>& answers) {
  std::vector<size_t> ranks;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].empty()) ranks.push_back(i);
  }
  if (ranks.empty() || answers.size() == 1) return ranks.empty() ? std::string() : answers.front();
  ErrorText text(kOperation, fmt::format("{} of {} ranks could not read the checkpoint", ranks.size(), answers.size()));
  for (size_t i = 0; i < std::min(ranks.size(), kMostShown); ++i) {
    text.fact(fmt::format("rank {}", group.ranks()[ranks[i]]), answers[ranks[i]]);
  }
  return text.help("what the ranks say; no rank went on");
}

bool is_wanted(const std::string& name, const std::vector<std::string>& names) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& wanted) {
           return name == wanted || (name.starts_with(wanted) && name[wanted.size()] == '.');
         });
}

}  // namespace

std::optional<LoadResult> detail::load_unless_damaged(StateDict& state, const std::string& path,
                                                      const LoadOptions& options, std::string& damage) {
  const Group group = options.group ? *options.group : current_world().group();
  Loader loader(options, path);
  // What the files lack is a rank's answer; what the state lacks is an error. All ranks see all answers.
  const auto is_intact = [&](const std::function<void()>& step) {
    const auto answers = tell_all(kOperation, group, [&]() -> std::string {
      try {
        step();
        return {};
      } catch (const c10::Error&) {
        throw;
      } catch (const std::exception& error) {
        return error.what();
      }
    });
    damage = told_by(group, answers);
    return damage.empty();
  };
  if (!is_intact([&] {
        loader.open();
        loader.plan(flatten_state_dict(state));
      })) {
    return std::nullopt;
  }
  if (!is_intact([&] { loader.read(); })) return std::nullopt;
  loader.finish(state);
  return std::move(loader).result();
}

LoadResult load(StateDict& state, const std::string& path, const LoadOptions& options) {
  std::string damage;
  auto result = detail::load_unless_damaged(state, path, options, damage);
  if (!result) throw c10::Error(damage, nullptr);
  return std::move(*result);
}

StateDict load_state_dict(const std::string& path, const std::vector<std::string>& names, const LoadOptions& options) {
  Loader loader(options, path);
  StateDict state;
  const auto read = [&] {
    loader.open();
    std::vector<FlatLeaf> leaves;
    std::map<std::string_view, const std::vector<format::PathPart>*> paths;
    if (loader.metadata().paths) {
      for (const auto& [name, parts] : *loader.metadata().paths) paths[name] = &parts;
    }
    for (const format::MetadataEntry& entry : loader.metadata().entries) {
      if (!is_wanted(entry.name, names)) continue;
      const auto found = paths.find(entry.name);
      leaves.push_back(
          {entry.name,
           found != paths.end() ? StatePath(found->second->begin(), found->second->end()) : StatePath{entry.name},
           {}});
    }
    loader.plan(std::move(leaves));
    loader.read();
    loader.finish(state);
    return std::string();
  };
  detail::alone(read);
  return state;
}

}  // namespace sherd
