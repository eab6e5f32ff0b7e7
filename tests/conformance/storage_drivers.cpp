// The storage drivers that the conformance suite is run on.

#include "command.h"
#include "conformance/storage.h"

namespace sherd::testing {
namespace {

// Every call sees the same memory, and no other test's.
StorageDriver in_memory() {
  const auto storage = std::make_shared<std::shared_ptr<Storage>>();
  return {.make = [storage] { return *storage; },
          .root =
              [storage] {
                *storage = memory_storage();
                return std::make_shared<const std::string>("root");
              },
          .sparse = false};
}

std::shared_ptr<const std::string> temporary_root() {
  struct Root {
    TempFolder folder;
    std::string path = folder.path().string();
  };
  const auto root = std::make_shared<Root>();
  return {root, &root->path};
}

StorageDriver on_disk(const DiskOptions& options) {
  return {.make = [options] { return disk_storage(options); }, .root = temporary_root};
}

INSTANTIATE_STORAGE_TESTS(Memory, in_memory());
INSTANTIATE_STORAGE_TESTS(Disk, on_disk({}));
INSTANTIATE_STORAGE_TESTS(DiskByThreads, on_disk({.io_uring = false}));
INSTANTIATE_STORAGE_TESTS(DiskDirect, on_disk({.direct = true}));
INSTANTIATE_STORAGE_TESTS(DiskThroughCache, on_disk({.direct = false}));

}  // namespace
}  // namespace sherd::testing
