#pragma once
#include <memory>
#include <string>

#include "sherd/storage.h"

namespace sherd {

/// A file of a storage that may be closed and opened again between reads, from several threads: of all such files of
/// the process, half as many as the system lets it open stay so, and the one that nobody read for longest is closed
/// first. Throws what Storage::open throws, now and in read(), and there std::runtime_error where another file has
/// taken its place that is not as long.
std::shared_ptr<const StoredFile> open_while_read(std::shared_ptr<const Storage> storage, std::string path);

}  // namespace sherd
