#include "checkpoint/load.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "checkpoint/dtypes.h"
#include "checkpoint/listed.h"
#include "checkpoint/numbered_dicts.h"
#include "checkpoint/objects.h"
#include "checkpoint/placing.h"
#include "checkpoint/readings.h"
#include "checkpoint/stored_below.h"
#include "checkpoint/tell_all.h"
#include "comm/errors.h"
#include "format/transforms.h"
#include "sharded/bytes.h"
#include "sherd/checkpoint.h"
#include "sherd/damage.h"
#include "sherd/world.h"
#include "stored/as_damage.h"
#include "stored/stored_checkpoint.h"
#include "tensor/boxes_meta.h"

namespace sherd {
namespace {

using stored::StoredCheckpoint;

constexpr const char* kOperation = "load";
constexpr size_t kMostShown = 10;

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

// Whether each element is known to have a place of its own: every dim steps over all that the smaller steps reach.
bool has_places_of_their_own(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::ranges::sort(dims);
  int64_t reach = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < reach) return false;
    reach += stride * (size - 1);
  }
  return true;
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
  /// `rank` of those that load together; where `loads`, each a part of the same state.
  Loader(const LoadOptions& options, std::string path, int64_t rank, bool loads)
      : options_(options),
        path_(std::move(path)),
        rank_(rank),
        loads_(loads),
        storage_(options.storage ? options.storage : disk_storage()) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  }

  void open() {
    checkpoint_ = stored::as_damage([&] {
      return stored::open_checkpoint(
          storage_, path_,
          {.verify = options_.verify, .rank = rank_, .loads = loads_, .threads = at::get_num_threads()});
    });
    for (const format::MetadataEntry& entry : checkpoint_->metadata().entries) entries_[entry.name] = &entry;
    readings_.emplace(*checkpoint_);
  }
  const format::Metadata& metadata() const { return checkpoint_->metadata(); }
  std::string contents() const { return checkpoint_->contents(); }
  detail::Readings& readings() { return *readings_; }

  /// Finds what is to be read, and everything that keeps it from being read, before anything is.
  void plan(std::vector<FlatLeaf> leaves) {
    Faults faults;
    detail::Filled filled = detail::filled_from_below(std::move(leaves), entries_, metadata());
    leaves_ = std::move(filled.leaves);
    made_dicts_ = std::move(filled.dicts);
    for (auto& [name, fault] : filled.faults) faults.add(std::move(name), std::move(fault));
    filled_.assign(leaves_.size(), false);
    for (FlatLeaf& leaf : leaves_) {
      const auto found = entries_.find(leaf.name);
      if (found == entries_.end()) {
        if (!take_from_whole(leaf) && !detail::is_empty(leaf.value)) result_.missing.push_back(leaf.name);
        continue;
      }
      filled_[place_of(leaf)] = true;
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
    stored::as_damage([&] {
      readings_->find();
      for (const Object& object : objects_) checkpoint_->check_file(object.place, leaves_[object.leaf].name);
    });
  }

  void read() {
    const at::NoGradGuard no_grad;
    readings_->read(options_.progress);
    for (const Object& object : objects_) {
      const std::string reader = fmt::format("object {}", leaves_[object.leaf].name);
      leaves_[object.leaf].value = read_object(object.place, reader);
    }
    result_.bytes = checkpoint_->bytes_read();
  }

  /// Objects get into the state; tensors are there already.
  void finish(StateDict& state) {
    std::vector<FlatLeaf> changed;
    for (FlatLeaf& leaf : leaves_) {
      if (!filled_[place_of(leaf)]) continue;
      // Whoever has a copy of the old values sees that it is one: autograd, and parameters gathered for use.
      const at::Tensor* tensor = leaf.value.tensor();
      if (tensor != nullptr && !tensor->is_inference()) tensor->unsafeGetTensorImpl()->bump_version();
      changed.push_back(std::move(leaf));
    }
    for (const auto& [tensor, with_memory] : allocated_) detail::take_memory(tensor, with_memory);
    unflatten_state_dict(changed, state);
    detail::restore_dicts(made_dicts_, state);
  }

  LoadResult result() && { return std::move(result_); }

 private:
  struct Object {
    size_t leaf;
    format::Place place;
  };

  StateValue read_object(const format::Place& place, const std::string& reader) {
    return stored::as_damage([&] {
      std::string archive = checkpoint_->object(place, reader);
      const int64_t origin = place.transforms < 0 ? place.offset : 0;
      return checkpoint_->parse_item(place, reader,
                                     [&] { return detail::object_from(std::move(archive), reader, origin); });
    });
  }

  size_t place_of(const FlatLeaf& leaf) const { return static_cast<size_t>(&leaf - leaves_.data()); }

  static bool is_tensor(const StateValue& value) {
    return (value.tensor() != nullptr && value.tensor()->defined()) || value.checkpointable() != nullptr;
  }

  // PyTorch before 2.4 saved a dict without tensors as one object: a value of the state may be inside of one. A tensor
  // may not: it would stay as it is, and another value take its place.
  bool take_from_whole(FlatLeaf& leaf) {
    if (is_tensor(leaf.value)) return false;
    for (size_t length = leaf.path.size() - 1; length > 0; --length) {
      const auto middle = leaf.path.begin() + static_cast<std::ptrdiff_t>(length);
      const auto found = entries_.find(to_string(StatePath(leaf.path.begin(), middle)));
      if (found == entries_.end()) continue;
      const auto* bytes = std::get_if<format::BytesEntry>(&found->second->content);
      if (bytes == nullptr) return false;
      auto [whole, is_new] = wholes_.try_emplace(found->second);
      if (is_new) {
        const std::string reader = fmt::format("object {}", found->first);
        stored::as_damage([&] { checkpoint_->check_file(bytes->place, reader); });
        whole->second["whole"] = read_object(bytes->place, reader);
      }
      StatePath rest(middle, leaf.path.end());
      rest.insert(rest.begin(), "whole");
      const StateValue* value = get_element(whole->second, rest);
      if (value == nullptr || value->tensor() != nullptr) return false;
      asked_.insert(found->second);
      filled_[place_of(leaf)] = true;
      leaf.value = *value;
      return true;
    }
    return false;
  }

  void plan_leaf(FlatLeaf& leaf, const format::MetadataEntry& entry) {
    const auto* stored = std::get_if<format::TensorEntry>(&entry.content);
    const bool wants_tensor = is_tensor(leaf.value);
    if (stored == nullptr && wants_tensor) {
      detail::throw_value_error(ErrorText(kOperation, "an object in the checkpoint, a tensor in the state"));
    }
    if (stored == nullptr) {
      objects_.push_back({place_of(leaf), std::get<format::BytesEntry>(entry.content).place});
      return;
    }
    if (!wants_tensor && !leaf.value.is_none()) {
      detail::throw_value_error(ErrorText(kOperation, fmt::format("a tensor {} in the checkpoint, {} in the state",
                                                                  text_of(*stored), leaf.value.kind())));
    }
    // Nothing in particular is asked for: the whole tensor, then.
    if (!wants_tensor) {
      check_unfolded(entry.name, *stored);
      leaf.value = at::empty(stored->size, at::TensorOptions(detail::to_torch(stored->dtype)));
    }
    if (leaf.value.checkpointable() != nullptr) {
      plan_tensor(*leaf.value.checkpointable(), entry, *stored);
    } else {
      at::Tensor into = *leaf.value.tensor();
      if (detail::has_no_memory(into)) {
        const at::Tensor with_memory = detail::with_memory(into);
        if (!with_memory.defined()) {
          detail::throw_value_error(
              ErrorText(kOperation, "a tensor of this kind without data (meta) cannot be filled"));
        }
        allocated_.emplace_back(into, with_memory);
        into = with_memory;
      }
      plan_tensor(*checkpointable(into), entry, *stored);
    }
  }

  // What a file says of sizes must not fill the memory, unless it has the bytes. Compressed ones are counted when they
  // are decompressed.
  void check_unfolded(const std::string& name, const format::TensorEntry& entry) {
    const int64_t bytes = numel(entry.size) * format::size_of(entry.dtype);
    int64_t in_files = 0;
    for (const format::Place& place : entry.places) {
      // Lengths that do not fit any file are refused when the file is looked at.
      if (place.transforms >= 0 || __builtin_add_overflow(in_files, place.length, &in_files)) return;
    }
    unfolded_ += std::clamp<int64_t>(bytes - in_files, 0, format::kMostUnfolded + 1);
    if (unfolded_ <= format::kMostUnfolded) return;
    throw c10::Error(ErrorText(kOperation, "a tensor is much larger than what is stored of it")
                         .fact("checkpoint", path_)
                         .fact("tensor", fmt::format("{} {}", name, text_of(entry)))
                         .fact("bytes", fmt::to_string(bytes))
                         .fact("stored", fmt::format("{} bytes", in_files))
                         .help("a state with a tensor of this size, and sherd::load(state, path)"),
                     nullptr);
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
      if (c10::isComplexType(detail::to_torch(stored.dtype)) && !into.is_complex()) {
        const format::DType dtype = detail::to_format(kOperation, into.scalar_type());
        detail::throw_value_error(ErrorText(
            kOperation, fmt::format("{} in the checkpoint, {} in the state, which has no room for imaginary parts",
                                    names_of(stored.dtype).text, names_of(dtype).text)));
      }
      if (!has_places_of_their_own(into)) {
        detail::throw_value_error(ErrorText(
            kOperation, fmt::format("elements of the state's tensor lie in one place of memory: sizes {}, strides {}",
                                    to_string(into.sizes().vec()), to_string(into.strides().vec()))));
      }
      int64_t covered = 0;
      std::vector<Box> parts;
      for (size_t i = 0; i < stored.chunk_count(); ++i) {
        const auto common = common_part(box, stored, i);
        if (!common) continue;
        covered += numel(common->in_wanted);
        readings_->add({&entry, i, common->in_saved, into, common->in_wanted.offset});
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
    text.fact("missing", detail::listed(result_.missing, kMostShown));
    if (!result_.unexpected.empty()) text.fact("not asked for", detail::listed(result_.unexpected, kMostShown));
    detail::throw_value_error(text.help("LoadOptions{.strict = false} to leave these as they are"));
  }

  const LoadOptions& options_;
  std::string path_;
  int64_t rank_;
  bool loads_;
  std::shared_ptr<Storage> storage_;
  std::unique_ptr<StoredCheckpoint> checkpoint_;
  std::optional<detail::Readings> readings_;  // once the checkpoint is open
  detail::Entries entries_;
  std::set<const format::MetadataEntry*> asked_;
  std::vector<FlatLeaf> leaves_;
  std::vector<Object> objects_;
  std::vector<bool> filled_;                                       // one for each leaf
  int64_t unfolded_ = 0;                                           // bytes of tensors beyond those of their files
  std::vector<StatePath> made_dicts_;                              // in place of a None, with ints for keys
  std::map<const format::MetadataEntry*, StateDict> wholes_;       // objects that have values of the state inside
  std::vector<std::pair<at::Tensor, at::Tensor>> allocated_ = {};  // meta tensors, and the same with memory
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

// Somebody may save to the path while ranks open it, one before that and one after: each would have files that fit
// together, and all of them the parts of two checkpoints. Ranks without digests have nothing to compare.
void check_one_save(const Group& group, const std::string& path, const std::vector<std::string>& contents) {
  const auto is_known = [](const std::string& digest) { return !digest.empty(); };
  const auto first = std::ranges::find_if(contents, is_known);
  const auto differs = [&](const std::string& digest) { return is_known(digest) && digest != *first; };
  const auto other = std::find_if(first, contents.end(), differs);
  if (other == contents.end()) return;
  const auto rank = [&](auto place) {
    return fmt::format("rank {}", group.ranks()[static_cast<size_t>(place - contents.begin())]);
  };
  throw c10::Error(ErrorText(kOperation, "the ranks found different checkpoints at one path")
                       .fact("checkpoint", path)
                       .fact(rank(first), *first)
                       .fact(rank(other), *other)
                       .help("load again when the save to this path is over; nothing was read"),
                   nullptr);
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
  Loader loader(options, path, group.rank(), /*loads=*/true);
  // What the files lack is a rank's answer; what the state lacks is an error, and so is a storage that fails. All ranks
  // see all answers.
  std::vector<std::string> told;
  const auto is_intact = [&](const std::function<std::string()>& step) {
    std::vector<std::string> faults;
    bool failed = false;  // a rank, for another reason than damage
    told.clear();
    const auto answers = work_and_tell_all(kOperation, group, [&](const StillWanted&) {
      ByteWriter answer;
      const auto tell = [&](bool fails, const std::string& fault, const std::string& word) {
        answer.put(fails);
        answer.put_text(fault);
        answer.put_text(word);
      };
      try {
        tell(false, {}, step());
      } catch (const c10::Error&) {
        throw;
      } catch (const DamagedCheckpoint& error) {
        tell(false, error.what(), {});
      } catch (const std::exception& error) {
        tell(true, error.what(), {});
      }
      return answer.take();
    });
    for (const std::string& answer : answers) {
      ByteReader in(kOperation, answer);
      failed = in.get<bool>() || failed;
      faults.push_back(in.get_text());
      told.push_back(in.get_text());
    }
    damage = told_by(group, faults);
    if (failed) throw c10::Error(damage, nullptr);
    return damage.empty();
  };
  if (!is_intact([&] {
        loader.open();
        loader.plan(flatten_state_dict(state));
        ByteWriter words;
        words.put_text(loader.contents());
        words.put_text(group.size() > 1 ? loader.readings().offer_blocks() : std::string());
        return words.take();
      })) {
    return std::nullopt;
  }
  std::vector<std::string> contents;
  std::vector<std::string> offers;
  for (const std::string& words : told) {
    ByteReader in(kOperation, words);
    contents.push_back(in.get_text());
    offers.push_back(in.get_text());
  }
  check_one_save(group, path, contents);
  loader.readings().share_blocks(offers, static_cast<size_t>(group.rank()));
  if (!is_intact([&] {
        const auto leave = [&](const void* /*nothing*/) { loader.readings().leave_blocks(); };
        const std::unique_ptr<const Loader, decltype(leave)> leaving(&loader, leave);  // however it ends
        loader.read();
        return std::string();
      })) {
    return std::nullopt;
  }
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
  const auto world = find_world();
  Loader loader(options, path, options.group ? options.group->rank() : world ? world->rank() : 0, /*loads=*/false);
  StateDict state;
  const auto read = [&] {
    loader.open();
    std::vector<FlatLeaf> leaves;
    const auto paths = detail::known_paths(loader.metadata());
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
    detail::restore_dicts(loader.metadata().dicts, state);
    return std::string();
  };
  detail::alone(read);
  return state;
}

}  // namespace sherd
