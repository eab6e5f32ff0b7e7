#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "sherd/error.h"
#include "stored/dcp_checkpoint.h"
#include "stored/safetensors_checkpoint.h"
#include "stored/stored_checkpoint.h"
#include "stored/torch_checkpoint.h"

namespace sherd::stored {
namespace {

// What torch.save wrote before its files were archives: a number that says so, as a pickle of its own.
constexpr std::string_view kOldTorchSave("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (text.size() > 200) return text + ", ...";
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// "80 04 7d", for people who know their formats.
std::string shown(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, 8)) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(byte));
  }
  return text.empty() ? "nothing" : text;
}

std::unique_ptr<StoredCheckpoint> open_file(const std::shared_ptr<Storage>& storage, const std::string& path,
                                            const OpenOptions& options) {
  const auto file = storage->open(path);
  std::string first(static_cast<size_t>(std::min<int64_t>(file->size(), 512)), '\0');
  const ReadRequest request{0, std::as_writable_bytes(std::span(first))};
  if (!first.empty()) file->read({&request, 1});
  if (TorchCheckpoint::begins(first)) return std::make_unique<TorchCheckpoint>(*storage, path, options);
  if (SafetensorsCheckpoint::begins(first, file->size())) {
    return std::make_unique<SafetensorsCheckpoint>(storage, path, options);
  }
  if (first.starts_with(kOldTorchSave) || (first.size() > 262 && first.substr(257, 5) == "ustar")) {
    throw std::runtime_error(ErrorText(options.operation, "a file of torch.save of before PyTorch 1.6 is not read")
                                 .fact("file", path)
                                 .help("torch.save(torch.load(path), path) with a PyTorch since 1.6 writes it anew"));
  }
  throw std::runtime_error(ErrorText(options.operation, "the file is of no format that is known")
                               .fact("file", path)
                               .fact("looked for", "an archive of torch.save or torch::save, a safetensors file")
                               .fact("begins with", shown(first))
                               .help("a file of one of these formats, or the folder of a distributed checkpoint"));
}

}  // namespace

void StoredCheckpoint::throw_damaged_item(const format::Place& place, const std::string& reader,
                                          const std::invalid_argument& why) const {
  const std::string_view text = why.what();
  const std::string_view first = text.substr(0, text.find('\n'));
  const size_t colon = first.find(": ");
  ErrorText error(options().operation, fmt::format("an item of the checkpoint is damaged: {}",
                                                   colon == std::string_view::npos ? first : first.substr(colon + 2)));
  error.fact("file", path_of_file(place.file));
  // Objects of some formats have no bytes of their own.
  if (place.length > 0) error.fact("bytes", fmt::format("{} to {}", place.offset, place.offset + place.length));
  throw std::invalid_argument(
      error.fact("reading", reader).fact("because", text).help("another checkpoint: this one is damaged"));
}

std::string StoredCheckpoint::contents() const {
  const format::Manifest* manifest = digests();
  if (manifest == nullptr) return {};
  std::string told;
  for (const format::MetadataEntry& entry : metadata_.entries) told += entry.name + '\0';
  for (const format::ManifestFile& file : manifest->files) {
    if (file.name == DcpCheckpoint::kMetadata) continue;  // which has the id of the save
    told += to_string(format::digest_of(std::as_bytes(std::span(file.blocks))));
  }
  return to_string(format::digest_of(std::as_bytes(std::span(told))));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::shared_ptr<Storage>& storage, const std::string& path,
                                                  const OpenOptions& options) {
  const std::vector<std::string> names = storage->list(path);
  if (names.empty() && storage->exists(path) && !storage->is_folder(path)) return open_file(storage, path, options);
  const bool is_dcp = DcpCheckpoint::is_in(names);
  const bool is_safetensors = SafetensorsCheckpoint::is_in(names);
  if (is_dcp && is_safetensors) {
    throw std::runtime_error(ErrorText(options.operation, "the folder holds checkpoints of two formats")
                                 .fact("path", path)
                                 .fact("found", some_of(names))
                                 .help("the path of a safetensors file, or a folder of one checkpoint alone"));
  }
  if (is_dcp) return std::make_unique<DcpCheckpoint>(storage, path, options);
  if (is_safetensors) return std::make_unique<SafetensorsCheckpoint>(storage, path, options);
  throw std::runtime_error(
      ErrorText(options.operation, "there is no checkpoint at this path")
          .fact("path", path)
          .fact("looked for", ".metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors")
          .fact("found", names.empty() ? "nothing" : some_of(names))
          .help("the path that was given to save"));
}

}  // namespace sherd::stored
