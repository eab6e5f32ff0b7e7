#include "checkpoint/saver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <random>
#include <set>

#include "checkpoint/dtypes.h"
#include "checkpoint/objects.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/tell_all.h"
#include "checkpoint/tensor_bytes.h"
#include "comm/errors.h"
#include "sharded/bytes.h"

namespace sherd::detail {
namespace {

constexpr const char* kOperation = "save";
constexpr const char* kMetadata = ".metadata";
// Items begin at such places, so that the elements of every tensor do: memory maps of a file are aligned then.
constexpr int64_t kAlignment = 64;
// How much of a tensor that must be copied first (from a GPU, or out of a view) is in memory at a time.
constexpr int64_t kPart = int64_t{16} << 20;

std::string new_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

int64_t aligned(int64_t position) { return (position + kAlignment - 1) / kAlignment * kAlignment; }

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

Dims row_major(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

}  // namespace

Saver::Saver(const Group& group, std::string path, SaveOptions options)
    : group_(group),
      path_(std::move(path)),
      options_(std::move(options)),
      storage_(options_.storage ? options_.storage : disk_storage()) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

std::string Saver::file_of(int32_t place) const {
  return storage_->replaces_whole_folders() ? fmt::format("__{}_0.distcp", place)
                                            : fmt::format("__{}_0-{}.distcp", place, id_);
}

// The first rank's part: the draft is there before others open it.
std::string Saver::open_draft() {
  if (path_.empty()) {
    throw_value_error(ErrorText(kOperation, "the path is empty").help("sherd::save(state, \"runs/gpt/step-1000\")"));
  }
  if (!options_.overwrite && storage_->exists(storage_->join(path_, kMetadata))) {
    throw_value_error(ErrorText(kOperation, "there is a checkpoint already")
                          .fact("path", path_)
                          .help("another path, or SaveOptions{.overwrite = true}"));
  }
  for (const std::string& stale : storage_->drafts(path_)) storage_->draft(path_, stale)->discard();
  const std::string id = new_id();
  draft_ = storage_->draft(path_, id);
  return id;
}

void Saver::plan(const StateDict& state, const std::function<void()>& check) {
  std::vector<SavedLeaf> leaves;
  try {
    Agreement agreement = agree_on_state(
        kOperation, group_,
        [&] {
          if (check) check();
          return leaves_of(kOperation, state);
        },
        [&] { return group_.rank() == 0 ? open_draft() : std::string(); }, leaves);
    id_ = agreement.words.front();
    state_ = std::move(agreement.state);
    tell_all(kOperation, group_, [&] {
      if (!draft_) draft_ = storage_->draft(path_, id_);
      if (!options_.base.empty()) base_ = std::make_unique<BaseBlocks>(*storage_, options_.base, path_);
      collect(leaves);
      return std::string();
    });
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
      const Dims offsets(numbers, numbers + static_cast<std::ptrdiff_t>(ndim));
      Dims sizes(numbers + static_cast<std::ptrdiff_t>(ndim), numbers + static_cast<std::ptrdiff_t>(2 * ndim));
      at::Tensor data = own.at(leaf.name)->tensor->shard({leaf.name, offsets, {}});
      format::TensorItem item{leaf.dtype, sizes, row_major(sizes)};
      total += item.data_bytes();
      items_.push_back({i, std::move(item), std::move(data)});
    }
  }
  total_ = total;
}

void Saver::snapshot(at::Tensor& memory) {
  std::vector<at::Tensor*> tensors;
  for (Item& item : items_) tensors.push_back(&item.data);
  copy_into(memory, tensors);
}

Saver::Report Saver::write_data() {
  Report report;
  if (items_.empty() && objects_.empty()) return report;
  const auto told = [&](int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(progress());
  };
  int64_t size = 0;
  for (const Item& item : items_) size = aligned(size) + format::lengths_of(item.item).total();
  for (const ObjectItem& object : objects_) size = aligned(size) + static_cast<int64_t>(object.bytes.size());
  total_ = size;
  FileStream stream(*draft_, file_of(static_cast<int32_t>(group_.rank())), size, base_.get(), told);
  for (Item& item : items_) {
    stream.align(kAlignment);
    stream.append(format::head_of(item.item));
    uint32_t crc = 0;
    for_each_part(item.data, kPart, [&](std::span<const std::byte> part) { stream.append(part, crc); });
    stream.append(format::tail_of(item.item, crc));
  }
  for (const ObjectItem& object : objects_) {
    stream.align(kAlignment);
    report.objects.push_back({object.leaf, stream.position(), static_cast<int64_t>(object.bytes.size())});
    stream.append(object.bytes);
  }
  FileStream::Written written = stream.finish();
  report.file = std::move(written.file);
  report.bytes = written.bytes;
  if (base_) {
    report.stored_files = base_->files();
    report.bytes_in_base = report.file.length - written.bytes;
  }
  return report;
}

std::string Saver::encode(const Report& report) {
  ByteWriter out;
  out.put_text(report.file.name);
  out.put(report.file.length);
  out.put(static_cast<uint64_t>(report.file.blocks.size()));
  for (const format::Digest& digest : report.file.blocks) out.put(digest);
  out.put(static_cast<uint64_t>(report.file.places.size()));
  for (const format::BlockPlace& place : report.file.places) out.put(place);
  out.put(static_cast<uint64_t>(report.stored_files.size()));
  for (const std::string& name : report.stored_files) out.put_text(name);
  out.put(report.bytes);
  out.put(report.bytes_in_base);
  out.put(static_cast<uint64_t>(report.objects.size()));
  for (const Report::Object& object : report.objects) out.put(object);
  return out.take();
}

Saver::Report Saver::decode(const std::string& bytes) {
  ByteReader in(kOperation, bytes);
  Report report;
  report.file.name = in.get_text();
  report.file.length = in.get<int64_t>();
  for (auto count = in.get<uint64_t>(); count > 0; --count) report.file.blocks.push_back(in.get<format::Digest>());
  for (auto count = in.get<uint64_t>(); count > 0; --count) report.file.places.push_back(in.get<format::BlockPlace>());
  for (auto count = in.get<uint64_t>(); count > 0; --count) report.stored_files.push_back(in.get_text());
  report.bytes = in.get<int64_t>();
  report.bytes_in_base = in.get<int64_t>();
  for (auto count = in.get<uint64_t>(); count > 0; --count) report.objects.push_back(in.get<Report::Object>());
  return report;
}

// Where every item lies follows from the plan, but for objects, whose lengths their writers tell.
format::Metadata Saver::metadata(const std::vector<Report>& reports) const {
  format::Metadata metadata;
  metadata.checkpoint_id = path_;
  metadata.save_id = id_;
  metadata.paths.emplace();
  std::vector<int32_t> files;
  for (size_t place = 0; place < reports.size(); ++place) {
    files.push_back(static_cast<int32_t>(metadata.files.size()));
    metadata.files.push_back(file_of(static_cast<int32_t>(place)));
  }
  std::vector<int64_t> positions(reports.size(), 0);
  format::TensorItem item;
  for (const AgreedLeaf& leaf : state_->leaves) {
    metadata.paths->emplace_back(leaf.name, leaf.path);
    if (!leaf.is_tensor) {
      metadata.entries.push_back({leaf.name, format::BytesEntry{}});
      continue;
    }
    format::TensorEntry entry;
    entry.dtype = leaf.dtype;
    entry.requires_grad = leaf.requires_grad;
    entry.size = leaf.size;
    entry.numbers = leaf.chunks.numbers;
    entry.places.reserve(leaf.chunks.writers.size());
    item.dtype = leaf.dtype;
    for (size_t chunk = 0; chunk < leaf.chunks.writers.size(); ++chunk) {
      const auto writer = static_cast<size_t>(leaf.chunks.writers[chunk]);
      const auto sizes = leaf.chunks.numbers.begin() + static_cast<std::ptrdiff_t>((2 * chunk + 1) * leaf.size.size());
      item.sizes.assign(sizes, sizes + static_cast<std::ptrdiff_t>(leaf.size.size()));
      item.strides = row_major(item.sizes);
      const int64_t length = format::lengths_of(item).total();
      const int64_t start = aligned(positions[writer]);
      entry.places.push_back({files[writer], -1, start, length});
      positions[writer] = start + length;
    }
    metadata.entries.push_back({leaf.name, std::move(entry)});
  }
  for (size_t place = 0; place < reports.size(); ++place) {
    for (const Report::Object& object : reports[place].objects) {
      std::get<format::BytesEntry>(metadata.entries[object.leaf].content).place = {files[place], -1, object.offset,
                                                                                   object.length};
    }
  }
  return metadata;
}

void Saver::write_metadata(const std::vector<Report>& reports) {
  format::Manifest manifest;
  manifest.id = id_;
  if (base_) {
    manifest.bases = base_->bases();
    manifest.base_ids = base_->ids();
    manifest.stored_files = base_->files();
  }
  std::set<std::string_view> told;  // in a pretended world every answer is this rank's own
  for (const Report& report : reports) {
    if (report.file.name.empty() || !told.insert(report.file.name).second) continue;
    const std::string stored = FileStream::stored_name(report.file.name, base_ != nullptr);
    if (!draft_->has(stored)) {
      throw std::runtime_error(ErrorText(kOperation, "a file that another rank wrote is not to be seen here")
                                   .fact("file", stored)
                                   .help("a path on a file system that all ranks share"));
    }
    format::ManifestFile file = report.file;
    const auto own = static_cast<int32_t>(manifest.stored_files.size());
    if (base_) manifest.stored_files.push_back(stored);
    for (format::BlockPlace& place : file.places) {
      if (place.base == 0) place.file = own;
    }
    manifest.files.push_back(std::move(file));
  }
  FileStream stream(*draft_, kMetadata, 0, nullptr);
  format::encode_metadata(metadata(reports), [&](std::span<const std::byte> part) { stream.append(part); });
  manifest.files.push_back(stream.finish().file);
  std::sort(manifest.files.begin(), manifest.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const std::string bytes = format::encode_manifest(manifest);
  const std::string name = storage_->replaces_whole_folders() ? format::kManifestName : format::manifest_name(id_);
  const auto writer = draft_->create(name, static_cast<int64_t>(bytes.size()));
  writer->write(0, std::as_bytes(std::span(bytes)));
  writer->finish();
  draft_->commit(kMetadata);
}

SaveResult Saver::write(const Group& group) {
  std::vector<Report> reports;
  SaveResult result;
  try {
    for (const std::string& answer : tell_all(kOperation, group, [&] { return encode(write_data()); })) {
      reports.push_back(decode(answer));
    }
    tell_all(kOperation, group, [&] {
      if (group.rank() == 0) write_metadata(reports);
      return std::string();
    });
  } catch (...) {
    if (group.rank() == 0) draft_->discard();
    throw;
  }
  for (const Report& report : reports) {
    result.bytes += report.bytes;
    result.bytes_in_base += report.bytes_in_base;
  }
  result.bytes_of_rank = reports[static_cast<size_t>(group.rank())].bytes;
  return result;
}

}  // namespace sherd::detail
