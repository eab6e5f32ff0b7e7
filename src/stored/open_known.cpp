#include "stored/open_known.h"

#include <stdexcept>

#include "sherd/damage.h"

namespace sherd::stored {

std::unique_ptr<StoredCheckpoint> open_known(const std::shared_ptr<Storage>& storage, const std::string& path,
                                             const OpenOptions& options) {
  try {
    return open_checkpoint(storage, path, options);
  } catch (const std::invalid_argument& error) {
    throw DamagedCheckpoint(error.what());
  }
}

std::shared_ptr<Storage> storage_or_disk(const std::shared_ptr<Storage>& storage) {
  return storage ? storage : disk_storage();
}

std::string file_path(const Storage& storage, const std::string& path, const std::string& name) {
  std::string inside = storage.join(path, name);
  if (storage.exists(inside) || !storage.list(path).empty()) return inside;
  return storage.exists(path) ? path : inside;
}

}  // namespace sherd::stored
