#include "checkpoint/saver.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/asked_state.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/numbered_dicts.h"
#include "checkpoint/objects.h"
#include "checkpoint/shared_views.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/write_distcp.h"
#include "checkpoint/write_safetensors.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/world_state.h"
#include "format/safetensors_texts.h"
#include "sherd/collectives.h"
#include "sherd/convert.h"
#include "sherd/world.h"
#include "storage/paths.h"
#include "stored/commit_dcp.h"
#include "stored/copy_elements.h"
#include "stored/dcp_checkpoint.h"
#include "stored/file_stream.h"
#include "stored/retention.h"
#include "stored/rewrite_within.h"
#include "stored/safetensors_checkpoint.h"
#include "stored/target.h"

namespace sherd::detail {
namespace {

constexpr const char* kOperation = "save";

std::string object_bytes(const StateValue& value) {
  if (const auto* opaque = std::get_if<StateOpaque>(&value.content())) return opaque->archive;
  std::vector<at::Tensor> tensors;
  const format::Value pickled = to_pickle(kOperation, value, tensors);
  std::vector<format::StorageBytes> storages;
  for (size_t i = 0; i < tensors.size(); ++i) {
    storages.push_back(
        {fmt::to_string(i), {static_cast<const std::byte*>(tensors[i].const_data_ptr()), tensors[i].nbytes()}});
  }
  std::string bytes;
  format::write_archive(pickled, storages, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

using Paths = std::vector<std::vector<format::PathPart>>;

std::string told_dicts(const StateDict& state) {
  const Paths dicts = numbered_dicts(state);
  return dicts.empty() ? std::string() : format::encode_dicts(dicts);
}

Paths all_dicts(const std::vector<std::string>& told) {
  Paths all;
  std::set<Paths::value_type> known;
  std::set<std::string_view> texts;  // most ranks say the same
  for (const std::string& text : told) {
    if (text.empty() || !texts.insert(text).second) continue;
    for (auto& path : format::decode_dicts(text, "what a rank told")) {
      if (known.insert(path).second) all.push_back(std::move(path));
    }
  }
  return all;
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

void await_saves() {
  if (const auto world = find_world()) world->state()->saves().drain();
}

Saver::Saver(const Group& group, std::string path, SaveOptions options)
    : group_(group),
      target_(without_trailing_slashes(std::move(path))),
      options_(std::move(options)),
      format_(format_for(target_, options_.format)),
      path_(is_one_file() ? stored::parts_of(target_) : target_),
      storage_(options_.storage ? options_.storage : disk_storage()) {}

// Ranks cannot write into one file together: they write a folder first.
bool Saver::is_one_file() const {
  return format_ == CheckpointFormat::torch_save ||
         (format_ == CheckpointFormat::safetensors && target_.ends_with(".safetensors"));
}

void Saver::check_options() const {
  if (target_.empty()) {
    throw_value_error(ErrorText(kOperation, "the path is empty").help("sherd::save(state, \"runs/gpt/step-1000\")"));
  }
  if (options_.give_up_after && options_.give_up_after->count() <= 0) {
    throw_value_error(ErrorText(kOperation, "the time after which ranks give up is not positive")
                          .fact("give_up_after", fmt::format("{} ms", options_.give_up_after->count()))
                          .help("SaveOptions{.give_up_after = std::chrono::minutes(10)}, or leave it away"));
  }
  if (format_ == CheckpointFormat::dcp) return;
  const char* option = !options_.base.empty() ? "a base" : options_.compress ? "compression" : nullptr;
  if (option == nullptr) return;
  throw_value_error(ErrorText(kOperation, "this format knows no base and no compression")
                        .fact("path", target_)
                        .fact("format", to_string(format_))
                        .fact("asked for", option)
                        .help("the path of a folder, which is a distributed checkpoint"));
}

// The first rank's part: the draft is there before others open it.
std::string Saver::open_draft() {
  check_options();
  const std::vector<std::string> names = storage_->list(target_);
  const bool is_there = stored::DcpCheckpoint::is_in(names) || stored::SafetensorsCheckpoint::is_in(names) ||
                        (is_one_file() && storage_->exists(target_));
  if (!options_.overwrite && is_there) {
    throw_value_error(ErrorText(kOperation, "there is a checkpoint already")
                          .fact("path", target_)
                          .help("another path, or SaveOptions{.overwrite = true}"));
  }
  stored::check_target(kOperation, *storage_, target_,
                       is_one_file() ? stored::TargetKind::file : stored::TargetKind::folder);
  stored::check_target(kOperation, *storage_, path_, stored::TargetKind::folder);
  for (const std::string& path : {path_, target_}) stored::discard_stale_drafts(*storage_, path);
  // What a save to one file left behind that was stopped between its two steps.
  if (is_one_file()) stored::discard_parts(kOperation, *storage_, target_);
  const std::string id = new_id();
  draft_ = storage_->draft(path_, id);
  return id;
}

void Saver::plan(const StateDict& state, const SavePlanOptions& options) {
  await_saves();
  std::vector<SavedLeaf> leaves;
  std::optional<StateDict> asked;
  try {
    Agreement agreement = agree_on_state(
        kOperation, group_,
        [&] {
          if (options.check) options.check();
          asked = asked_state(state);
          return leaves_of(kOperation, asked ? *asked : state);
        },
        [&] { return group_.rank() == 0 ? open_draft() : std::string(); }, leaves);
    id_ = agreement.words.front();
    // The first rank writes the metadata: tensors in one memory are so on all ranks, whose states are alike.
    if (format_ == CheckpointFormat::torch_save && group_.rank() == 0) shared_ = shared_views(leaves);
    state_ = std::move(agreement.state);
    const auto told = tell_all(kOperation, group_, [&] {
      if (format_ == CheckpointFormat::safetensors) check_safetensors(*state_);
      if (!draft_) draft_ = storage_->draft(path_, id_);
      if (!options_.base.empty()) base_ = std::make_unique<stored::BaseBlocks>(*storage_, options_.base, path_);
      collect(leaves);
      if (options.memory != nullptr) snapshot(*options.memory);
      return told_dicts(asked ? *asked : state);
    });
    dicts_ = all_dicts(told);
  } catch (...) {
    if (draft_) draft_->discard();
    throw;
  }
}

void Saver::collect(const std::vector<SavedLeaf>& leaves) {
  std::map<std::string_view, const SavedLeaf*> own;
  for (const SavedLeaf& leaf : leaves) own[leaf.name] = &leaf;
  const auto here = static_cast<int32_t>(group_.rank());
  int64_t total = 0;
  for (size_t i = 0; i < state_->leaves.size(); ++i) {
    const AgreedLeaf& leaf = state_->leaves[i];
    if (!leaf.is_tensor) {
      if (leaf.writer != here) continue;
      objects_.push_back({i, object_bytes(own.at(leaf.name)->value)});
      total += static_cast<int64_t>(objects_.back().bytes.size());
      continue;
    }
    const size_t ndim = leaf.size.size();
    for (size_t chunk = 0; chunk < leaf.chunks.writers.size(); ++chunk) {
      if (leaf.chunks.writers[chunk] != here) continue;
      const auto numbers = leaf.chunks.numbers.begin() + static_cast<std::ptrdiff_t>(2 * chunk * ndim);
      Dims offsets(numbers, numbers + static_cast<std::ptrdiff_t>(ndim));
      Dims sizes(numbers + static_cast<std::ptrdiff_t>(ndim), numbers + static_cast<std::ptrdiff_t>(2 * ndim));
      at::Tensor data = own.at(leaf.name)->tensor->shard({leaf.name, offsets, {}});
      format::TensorItem item{leaf.dtype, sizes, stored::row_major(sizes)};
      total += item.data_bytes();
      items_.push_back({i, std::move(offsets), std::move(item), std::move(data)});
    }
  }
  total_ = total;
}

void Saver::snapshot(at::Tensor& memory) {
  std::vector<at::Tensor*> tensors;
  for (ItemToSave& item : items_) tensors.push_back(&item.data);
  copy_into(memory, tensors);
}

SaveReport Saver::write_data(const StillWanted& wanted) {
  const auto told = [&](int64_t bytes) {
    wanted.check();
    done_ += bytes;
    if (options_.progress) options_.progress(progress());
  };
  if (format_ == CheckpointFormat::safetensors && !is_one_file()) {
    wanted.at("writing its part of " + path_);
    return write_safetensors(*draft_, *state_, items_, objects_,
                             {.id = id_,
                              .dicts = dicts_,
                              .rank = group_.rank(),
                              .id_in_names = !storage_->replaces_whole_folders(),
                              .told = told});
  }
  total_ = distcp_bytes(items_, objects_);
  const std::string name = stored::distcp_name(*storage_, id_, group_.rank());
  wanted.at("writing " + storage_->join(path_, name));
  return write_distcp(*draft_, items_, objects_,
                      {.name = name, .base = base_.get(), .compress = options_.compress, .told = told});
}

void Saver::check_files(const std::vector<SaveReport>& reports) const {
  for (const SaveReport& report : reports) {
    for (const format::ManifestFile& file : report.files) {
      const std::string stored = stored::FileStream::stored_name(file.name, base_ != nullptr);
      if (draft_->has(stored)) continue;
      throw std::runtime_error(ErrorText(kOperation, "a file that another rank wrote is not to be seen here")
                                   .fact("file", stored)
                                   .help("a path on a file system that all ranks share"));
    }
  }
}

void Saver::commit_distcp(const std::vector<SaveReport>& reports) {
  format::Manifest manifest;
  manifest.id = id_;
  if (base_) {
    manifest.bases = base_->bases();
    manifest.base_ids = base_->ids();
    manifest.stored_files = base_->files();
  }
  std::set<std::string> told;  // in a pretended world every answer is this rank's own
  std::vector<std::string> names;
  for (const SaveReport& report : reports) {
    names.push_back(stored::distcp_name(*storage_, id_, static_cast<int64_t>(names.size())));
    for (format::ManifestFile file : report.files) {
      if (!told.insert(file.name).second) continue;
      const auto own = static_cast<int32_t>(manifest.stored_files.size());
      if (base_) manifest.stored_files.push_back(stored::FileStream::stored_name(file.name, true));
      for (format::BlockPlace& place : file.places) {
        if (place.base == 0) place.file = own;
      }
      manifest.files.push_back(std::move(file));
    }
  }
  stored::drop_unused(manifest);
  format::Metadata metadata = distcp_metadata(*state_, names, reports, options_.compress);
  metadata.checkpoint_id = target_;
  metadata.save_id = id_;
  metadata.dicts = dicts_;
  metadata.shared = shared_;
  stored::commit_dcp(*storage_, *draft_, std::move(metadata), std::move(manifest));
}

void Saver::commit(const std::vector<SaveReport>& reports) {
  check_files(reports);
  if (format_ == CheckpointFormat::safetensors && !is_one_file()) {
    commit_safetensors(*draft_, id_, reports);
  } else {
    commit_distcp(reports);
  }
}

// The folder that the ranks wrote becomes the file that was asked for.
int64_t Saver::make_one_file(const StillWanted& wanted) {
  try {
    RewriteOptions options;
    options.format = format_;
    options.overwrite = true;
    options.from_storage = storage_;
    options.to_storage = storage_;
    options.progress = [&](int64_t, int64_t) { wanted.check(); };
    options.operation = kOperation;
    const int64_t bytes = stored::rewrite_within(stored::kBesideAModel, {path_}, target_, options).bytes;
    stored::remove_checkpoint(*storage_, path_);
    return bytes;
  } catch (...) {
    try {
      stored::remove_checkpoint(*storage_, path_);
    } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): the first fault counts
    }
    throw;
  }
}

// Called by all ranks, none of which is at work any more. Where they share what they wrote into, the first one removes
// it and the others see nothing; where they do not, each has a draft of its own.
void Saver::discard_on_all(const Group& group) noexcept {
  try {
    if (group.rank() == 0) draft_->discard();
    if (group.size() == 1) return;
    barrier(group);
    if (group.rank() == 0) return;
    const auto left = storage_->drafts(path_);
    if (std::find(left.begin(), left.end(), id_) != left.end()) draft_->discard();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first fault counts; the next save removes what is left
  }
}

SaveResult Saver::write(const Group& group) {
  // However it ends: futures are kept, and would keep the state.
  const auto let_go = [this](const void* /*nothing*/) {
    items_.clear();
    objects_.clear();
    base_.reset();
  };
  const std::unique_ptr<const Saver, decltype(let_go)> letting_go(this, let_go);
  std::vector<SaveReport> reports;
  SaveResult result;
  try {
    // A group that has not talked yet connects now, while all are there: a rank that goes later is missed at once.
    if (group.size() > 1) group.backend(c10::kCPU);
    const auto write_and_tell = [&](const StillWanted& wanted) { return encode(write_data(wanted)); };
    for (const std::string& answer : work_and_tell_all(kOperation, group, write_and_tell, options_.give_up_after)) {
      reports.push_back(decode_report(answer));
    }
    std::function<std::string(const StillWanted&)> put_in_place;
    if (group.rank() == 0) {
      put_in_place = [&](const StillWanted& wanted) {
        wanted.at("putting in place " + target_);
        commit(reports);
        return is_one_file() ? fmt::to_string(make_one_file(wanted)) : std::string();
      };
    }
    const auto answers = work_and_tell_all(kOperation, group, put_in_place, options_.give_up_after);
    if (is_one_file()) result.bytes = std::stoll(answers.front());
  } catch (const c10::DistBackendError&) {
    // Ranks are gone, and what the others are at is not known: one that has heard of nothing may be about to put in
    // place what a second one would remove under its hands.
    if (group.rank() == 0) draft_->discard();
    throw;
  } catch (...) {
    discard_on_all(group);
    throw;
  }
  for (const SaveReport& report : reports) {
    if (!is_one_file()) result.bytes += report.bytes;
    result.bytes_in_base += report.bytes_in_base;
  }
  result.bytes_of_rank = reports[static_cast<size_t>(group.rank())].bytes;
  return result;
}

}  // namespace sherd::detail
