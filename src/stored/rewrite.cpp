#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "sherd/convert.h"
#include "sherd/error.h"
#include "storage/in_threads.h"
#include "storage/paths.h"
#include "stored/as_damage.h"
#include "stored/base_blocks.h"
#include "stored/chosen.h"
#include "stored/commit_dcp.h"
#include "stored/container_kinds.h"
#include "stored/copy_elements.h"
#include "stored/names.h"
#include "stored/open_known.h"
#include "stored/rewrite_within.h"
#include "stored/target.h"
#include "stored/write_files.h"

namespace sherd {
namespace {

using format::PathPart;
using stored::ChosenObject;
using stored::ChosenTensor;
using stored::StoredCheckpoint;

// As HuggingFace's libraries cut them.
constexpr int64_t kFileBytes = 5'000'000'000;

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_inside(const Storage& storage, const std::string& path, const std::string& folder) {
  return storage.full_path(path).starts_with(storage.full_path(folder) + "/");
}
bool is_same(const Storage& storage, const std::string& path, const std::string& other) {
  return storage.full_path(path) == storage.full_path(other);
}

// Where an entry stands under its new name: each key of its path, from the last one on, takes as many words of the name
// as it had, the first one all that are left. So the last keys of both paths are those of the same containers.
std::vector<PathPart> renamed_path(const std::string& name, const std::vector<PathPart>& path) {
  std::vector<PathPart> keys;
  std::string_view rest = name;
  for (size_t i = path.size(); i-- > 0 && !rest.empty();) {
    const std::string old = std::visit([](const auto& value) { return fmt::format("{}", value); }, path[i]);
    size_t begin = rest.size();
    for (auto dots = std::ranges::count(old, '.') + 1; dots > 0 && begin != std::string_view::npos; --dots) {
      begin = begin == 0 ? std::string_view::npos : rest.rfind('.', begin - 1);
    }
    if (i == 0) begin = std::string_view::npos;
    const std::string key(begin == std::string_view::npos ? rest : rest.substr(begin + 1));
    if (key == old) {
      keys.push_back(path[i]);  // a number stays one
    } else {
      keys.emplace_back(key);
    }
    rest = begin == std::string_view::npos ? std::string_view() : rest.substr(0, begin);
  }
  std::reverse(keys.begin(), keys.end());
  return keys;
}

class Rewriter {
 public:
  Rewriter(const std::vector<std::string>& from, const std::string& to, const RewriteOptions& options, int64_t memory)
      : to_(without_trailing_slashes(to)),
        options_(options),
        memory_(memory),
        from_storage_(options.from_storage ? options.from_storage : disk_storage()),
        to_storage_(options.to_storage ? options.to_storage : disk_storage()) {
    open_options_.verify = options.verify;
    open_options_.tolerant = options.skip_damaged;
    open_options_.operation = options.operation;
    open_options_.no_verify = "--no-verify";
    for (const std::string& path : from) sources_.push_back({from_storage_, without_trailing_slashes(path)});
    result_.format = format_for(to_, options.format);
    check_target();
  }

  RewriteResult run() {
    for (stored::Source& source : sources_) {
      checkpoints_.push_back(stored::open_known(source.storage, source.path, open_options_));
      source.save = stored::save_of(*checkpoints_.back());
      const auto& names = checkpoints_.back()->of_each_rank();
      result_.of_each_rank.insert(result_.of_each_rank.end(), names.begin(), names.end());
    }
    choose();
    check_parts();
    result_.tensors = static_cast<int64_t>(chosen_.tensors.size());
    result_.objects = static_cast<int64_t>(chosen_.objects.size());
    const std::string id = new_id();
    write(id);
    return std::move(result_);
  }

 private:
  using Checkpoints = std::vector<std::unique_ptr<StoredCheckpoint>>;

  void check_target() const {
    if (sources_.empty() || to_.empty()) {
      throw std::invalid_argument(ErrorText(
          options_.operation, sources_.empty() ? "there is no checkpoint to read" : "the target's path is empty"));
    }
    for (const stored::Source& source : sources_) {
      const bool same_storage = options_.from_storage == options_.to_storage;
      if (!same_storage) continue;
      const bool same = is_same(*to_storage_, source.path, to_);
      if (!same && !is_inside(*to_storage_, to_, source.path) && !is_inside(*to_storage_, source.path, to_)) continue;
      if (same && options_.overwrite) continue;  // the old one stays until the new one is complete
      throw std::invalid_argument(ErrorText(options_.operation, "the target lies in the source, or the source in it")
                                      .fact("source", source.path)
                                      .fact("target", to_)
                                      .help("a target beside the source"));
    }
    if (!options_.overwrite && to_storage_->exists(to_)) {
      throw std::invalid_argument(ErrorText(options_.operation, "there is something at the target already")
                                      .fact("target", to_)
                                      .help("another target, or --force (RewriteOptions{.overwrite = true})"));
    }
    stored::check_target(options_.operation, *to_storage_, to_,
                         is_one_file() ? stored::TargetKind::file : stored::TargetKind::folder);
    if (options_.layouts && result_.format != CheckpointFormat::dcp) {
      throw std::invalid_argument(ErrorText(options_.operation, "this format has no parts for ranks")
                                      .fact("target", to_)
                                      .fact("format", to_string(result_.format))
                                      .help("a folder as the target"));
    }
  }

  bool is_one_file() const {
    if (result_.format == CheckpointFormat::safetensors)
      return options_.file_bytes == 0 && to_.ends_with(".safetensors");
    return result_.format == CheckpointFormat::torch_save;
  }

  void choose() {
    std::map<std::string, size_t> sources_of_names;
    bool left_out = false;
    stored::NameChanges names(options_);
    stored::ContainerKinds kinds(options_.operation);
    for (size_t source = 0; source < sources_.size(); ++source) {
      const format::Metadata& metadata = checkpoints_[source]->metadata();
      kinds.enter(metadata, sources_[source].path);
      std::map<std::string_view, const std::vector<PathPart>*> paths;
      if (metadata.paths) {
        for (const auto& [name, path] : *metadata.paths) paths[name] = &path;
      }
      for (size_t i = 0; i < metadata.entries.size(); ++i) {
        const format::MetadataEntry& entry = metadata.entries[i];
        const std::optional<std::string> name = names(entry.name);
        if (!name) {
          left_out = true;
          continue;
        }
        const auto [found, is_new] = sources_of_names.emplace(*name, source);
        if (!is_new) refuse_name(*name, found->second, source);
        const auto known = paths.find(entry.name);
        const std::vector<PathPart> old_path =
            known != paths.end() ? *known->second : std::vector<PathPart>{entry.name};
        std::vector<PathPart> path = *name == entry.name ? old_path : renamed_path(*name, old_path);
        kinds.add(old_path, path);
        add(source, i, *name, std::move(path));
      }
      take_shared(source);
    }
    std::move(kinds).give(chosen_);
    names.check_all_used();
    // A checkpoint of nothing is one, too.
    if (left_out && chosen_.tensors.empty() && chosen_.objects.empty() && result_.damaged.empty()) {
      throw std::invalid_argument(
          ErrorText(options_.operation, "nothing is left to write")
              .fact("source", sources_.front().path)
              .fact("entries there", fmt::to_string(checkpoints_.front()->metadata().entries.size()))
              .help("patterns that match some names; `sherd inspect` shows them"));
    }
  }

  void take_shared(size_t source) {
    const format::Metadata& metadata = checkpoints_[source]->metadata();
    std::map<std::string_view, stored::InMemory> views;
    for (const auto& group : metadata.shared) {
      ++memories_;
      for (const format::SharedView& view : group) views[view.name] = {memories_, view.offset, view.strides};
    }
    for (ChosenTensor& tensor : chosen_.tensors) {
      if (tensor.source != source || views.empty()) continue;
      const auto found = views.find(metadata.entries[tensor.entry].name);
      const bool fits = found != views.end() && found->second.strides.size() == tensor.content->size.size();
      if (fits) tensor.shared = found->second;
    }
  }

  void add(size_t source, size_t entry, const std::string& name, std::vector<PathPart> path) {
    const auto& content = checkpoints_[source]->metadata().entries[entry].content;
    if (const auto* tensor = std::get_if<format::TensorEntry>(&content)) {
      chosen_.tensors.push_back({name, std::move(path), source, entry, tensor, order_++});
      return;
    }
    unless_damaged(name, [&] {
      const format::Place& place = std::get<format::BytesEntry>(content).place;
      const std::string reader = fmt::format("object {}", name);
      std::string archive = stored::as_damage([&] {
        checkpoints_[source]->check_file(place, reader);
        return checkpoints_[source]->object(place, reader);
      });
      chosen_.objects.push_back({name, std::move(path), std::move(archive), order_++});
    });
  }

  [[noreturn]] void refuse_name(const std::string& name, size_t first, size_t second) const {
    ErrorText text(options_.operation, "two entries have one name");
    text.fact("name", name).fact("in", sources_[first].path);
    if (first != second) text.fact("and in", sources_[second].path);
    throw std::invalid_argument(text.help("a pattern that tells them apart, such as --rename \"*=a.*\""));
  }

  // Whether it could be done; what is wrong ends everything, or is told with the result.
  bool unless_damaged(const std::string& name, const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      if (!options_.skip_damaged) throw;
      const std::scoped_lock lock(mutex_);
      result_.damaged.push_back({name, error.what()});
      return false;
    }
  }

  // Everything that can be wrong with a tensor, but for its bytes; those too, where damaged ones are to be left out.
  void check_parts() {
    std::vector<char> intact(chosen_.tensors.size(), 1);
    std::atomic<size_t> next = 0;
    in_threads(options_.skip_damaged ? threads() : 1, [&] {
      Checkpoints own(sources_.size());
      for (size_t i = next++; i < chosen_.tensors.size(); i = next++) {
        const ChosenTensor& tensor = chosen_.tensors[i];
        intact[i] = unless_damaged(tensor.name, [&] { stored::as_damage([&] { check_tensor(tensor, own); }); }) ? 1 : 0;
      }
    });
    std::vector<ChosenTensor> kept;
    for (size_t i = 0; i < intact.size(); ++i) {
      if (intact[i] != 0) kept.push_back(std::move(chosen_.tensors[i]));
    }
    chosen_.tensors = std::move(kept);
    std::sort(result_.damaged.begin(), result_.damaged.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  void check_tensor(const ChosenTensor& tensor, Checkpoints& own) const {
    std::vector<Box> boxes;
    for (size_t i = 0; i < tensor.content->chunk_count(); ++i) boxes.push_back(tensor.content->box(i));
    if (const auto fault = find_tiling_fault(boxes, tensor.content->size)) {
      const bool hole = fault->kind == TilingFault::Kind::hole;
      throw std::runtime_error(
          ErrorText(options_.operation, hole ? "the checkpoint has no data for a part of a tensor"
                                             : "the checkpoint has two chunks for a part of a tensor")
              .fact("tensor", tensor.name)
              .fact("part", to_string(fault->box))
              .help("another checkpoint, or `sherd repair` for what is complete"));
    }
    const std::string reader = fmt::format("tensor {}", tensor.name);
    StoredCheckpoint& checkpoint = options_.skip_damaged ? own_checkpoint(own, tensor) : *checkpoints_[tensor.source];
    for (size_t i = 0; i < tensor.content->chunk_count(); ++i) {
      if (numel(boxes[i]) == 0) continue;
      checkpoint.check_file(tensor.content->places[i], reader);
      if (options_.skip_damaged) check_chunk(checkpoint, tensor, i);
    }
  }

  void write(const std::string& id) {
    // Everything that can be refused is, before the draft is made.
    std::vector<stored::FilePlan> plans;
    format::Metadata metadata;
    if (result_.format == CheckpointFormat::dcp) {
      stored::DcpPlan plan = stored::plan_dcp(chosen_, options_.layouts, *to_storage_, to_, id, options_.operation);
      plans = std::move(plan.files);
      metadata = std::move(plan.metadata);
    } else if (result_.format == CheckpointFormat::safetensors) {
      const int64_t most = options_.file_bytes > 0 ? options_.file_bytes : kFileBytes;
      // Where files are put in place one by one, the index comes last and none has the name of one that was there.
      const std::string in_names = to_storage_->replaces_whole_folders() ? "" : id;
      plans = stored::plan_safetensors(chosen_, is_one_file() ? 0 : most, options_.operation, in_names);
      for (const ChosenObject& object : chosen_.objects) result_.objects_as_json.push_back(object.name);
    } else {
      plans.push_back(stored::plan_torch_save(chosen_, options_.operation));
    }
    check_crcs(plans);
    stored::discard_stale_drafts(*to_storage_, to_);
    const auto draft = to_storage_->draft(to_, id);
    try {
      const bool is_dcp = result_.format == CheckpointFormat::dcp;
      auto files = stored::write_files(sources_, *draft, plans,
                                       {.open = open_options_,
                                        .digests = is_dcp,
                                        .progress = options_.progress,
                                        .bytes_to_open = bytes_to_open(),
                                        .memory = memory_});
      for (const format::ManifestFile& file : files) result_.bytes += file.length;
      result_.files = static_cast<int64_t>(files.size());
      if (is_dcp) {
        format::Manifest manifest;
        manifest.id = id;
        manifest.files = std::move(files);
        stored::commit_dcp(*to_storage_, *draft, std::move(metadata), std::move(manifest));
      } else {
        draft->commit(plans.back().name);
      }
    } catch (...) {
      draft->discard();
      throw;
    }
  }

  // CRCs of whole chunks that do not go into the result as they are: while they are written there is nothing to compare
  // them with.
  void check_crcs(const std::vector<stored::FilePlan>& plans) {
    if (!options_.verify || options_.skip_damaged) return;
    std::map<std::pair<size_t, size_t>, std::vector<const Box*>> written;
    for (const stored::FilePlan& plan : plans) {
      for (const stored::Piece& piece : plan.pieces) {
        if (const auto* elements = std::get_if<stored::Elements>(&piece)) {
          written[{elements->source, elements->entry}].push_back(&elements->box);
        }
      }
    }
    struct Chunk {
      const ChosenTensor* tensor;
      size_t number;
      bool as_it_is;  // and then compared while it is written, if its elements lie in row-major order
    };
    std::vector<Chunk> chunks;
    for (const ChosenTensor& tensor : chosen_.tensors) {
      if (checkpoints_[tensor.source]->has_digests()) continue;
      const auto& boxes = written[{tensor.source, tensor.entry}];
      for (size_t i = 0; i < tensor.content->chunk_count(); ++i) {
        const Box box = tensor.content->box(i);
        const bool as_it_is = std::any_of(boxes.begin(), boxes.end(), [&](const Box* other) { return *other == box; });
        if (numel(box) > 0) chunks.push_back({&tensor, i, as_it_is});
      }
    }
    std::atomic<size_t> next = 0;
    in_threads(std::min(threads(), chunks.size()), [&] {
      Checkpoints own(sources_.size());
      for (size_t i = next++; i < chunks.size(); i = next++) {
        const Chunk& chunk = chunks[i];
        stored::as_damage(
            [&] { check_chunk(own_checkpoint(own, *chunk.tensor), *chunk.tensor, chunk.number, chunk.as_it_is); });
        if (!options_.progress || chunk.as_it_is) continue;
        const std::scoped_lock lock(mutex_);
        options_.progress(0, 0);
      }
    });
  }

  // As measured, with all that parsing them takes.
  int64_t bytes_to_open() const {
    constexpr int64_t kPerChunk = 1200;
    int64_t bytes = 0;
    for (const auto& checkpoint : checkpoints_) {
      for (const format::MetadataEntry& entry : checkpoint->metadata().entries) {
        const auto* tensor = std::get_if<format::TensorEntry>(&entry.content);
        bytes += kPerChunk * (1 + (tensor != nullptr ? static_cast<int64_t>(tensor->chunk_count()) : 0));
      }
    }
    return bytes;
  }
  // A thread's own.
  StoredCheckpoint& own_checkpoint(Checkpoints& own, const ChosenTensor& tensor) const {
    auto& checkpoint = own[tensor.source];
    if (!checkpoint) checkpoint = stored::open_again(sources_[tensor.source], open_options_);
    return *checkpoint;
  }
  // Reads all of it, which compares digests or the CRC.
  static void check_chunk(StoredCheckpoint& checkpoint, const ChosenTensor& tensor, size_t number,
                          bool unless_row_major = false) {
    const std::string reader = fmt::format("tensor {}", tensor.name);
    const stored::StoredElements chunk = checkpoint.locate(*tensor.content, number, reader);
    if (unless_row_major && stored::is_row_major(chunk.sizes, chunk.strides)) return;
    stored::read_box(
        chunk, {Dims(chunk.sizes.size(), 0), chunk.sizes}, [](const stored::ReadPart&) {}, reader);
  }
  size_t threads() const { return stored::threads_for(bytes_to_open(), memory_); }

  std::string to_;
  const RewriteOptions& options_;
  int64_t memory_;
  std::shared_ptr<Storage> from_storage_;
  std::shared_ptr<Storage> to_storage_;
  stored::OpenOptions open_options_;
  std::vector<stored::Source> sources_;
  Checkpoints checkpoints_;
  stored::Chosen chosen_;
  size_t order_ = 0;
  size_t memories_ = 0;  // that tensors share
  std::mutex mutex_;
  RewriteResult result_;
};

}  // namespace

RewriteResult stored::rewrite_within(int64_t memory, const std::vector<std::string>& from, const std::string& to,
                                     const RewriteOptions& options) {
  return Rewriter(from, to, options, memory).run();
}

RewriteResult rewrite_checkpoint(const std::vector<std::string>& from, const std::string& to,
                                 const RewriteOptions& options) {
  return stored::rewrite_within(stored::WriteOptions::kMemory, from, to, options);
}

}  // namespace sherd
