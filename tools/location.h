#pragma once
// Where a path on the command line leads: "s3://bucket/key" to an object store, anything else to a disk.

#include <memory>
#include <string>

#include "sherd/storage.h"

namespace sherd::tools {

struct Location {
  std::shared_ptr<Storage> storage;
  std::string path;  // the storage's own
};

/// Throws std::invalid_argument "<verb>: ..." for other "scheme://", and for S3 without a bucket or a key.
Location storage_for(const std::string& verb, const std::string& path);

}  // namespace sherd::tools
