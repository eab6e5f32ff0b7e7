#include "stored/open_block_file.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "sherd/error.h"
#include "storage/open_files.h"

namespace sherd::stored {

std::unique_ptr<BlockFile> open_block_file(const std::shared_ptr<Storage>& storage, const std::string& path,
                                           const format::ManifestFile* digests, const OpenOptions& options) {
  if (!storage->exists(path)) {
    throw std::runtime_error(ErrorText(options.operation, "a file of the checkpoint is missing")
                                 .fact("file", path)
                                 .help("another checkpoint, or bring the file back"));
  }
  std::shared_ptr<const StoredFile> file = open_while_read(storage, path);
  if (digests != nullptr && digests->length != file->size()) {
    throw std::runtime_error(ErrorText(options.operation, "a file of the checkpoint has another length than was saved")
                                 .fact("file", path)
                                 .fact("bytes saved", fmt::to_string(digests->length))
                                 .fact("bytes there", fmt::to_string(file->size()))
                                 .help("another checkpoint: this one is damaged"));
  }
  return std::make_unique<BlockFile>(path, std::move(file), options.verify ? digests : nullptr, options);
}

}  // namespace sherd::stored
