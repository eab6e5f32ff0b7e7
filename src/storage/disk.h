#pragma once
// The parts of disk storage. All share the system calls, which a test may replace.

#include <memory>
#include <string>

#include "sherd/storage.h"
#include "storage/posix.h"

namespace sherd {

struct Disk {
  std::shared_ptr<Posix> posix = std::make_shared<Posix>();
  DiskOptions options = {};
};

std::shared_ptr<Storage> disk_storage(Disk disk);

std::unique_ptr<StoredFile> open_disk_file(const Disk& disk, const std::string& path);
std::unique_ptr<FileWriter> create_disk_file(const Disk& disk, const std::string& path, int64_t size);
/// The draft's folder is made where it is not there.
std::unique_ptr<Draft> open_disk_draft(const Disk& disk, const std::string& folder, const std::string& id);

/// Where the file or folder is: at its path, or, where a process ended between the two steps of a commit (see
/// disk_draft.cpp), in what the folder was before.
std::string find_on_disk(Posix& posix, const std::string& path);

}  // namespace sherd
