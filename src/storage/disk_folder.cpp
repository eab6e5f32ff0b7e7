#include "storage/disk_folder.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "storage/io_error.h"

namespace sherd {

void make_folders(Posix& posix, const std::string& path) {
  int result = posix.mkdir(path);
  if (result == -ENOENT && path != "/" && path != ".") {
    make_folders(posix, parent_of(path));
    result = posix.mkdir(path);
  }
  if (result == -EEXIST) return;
  if (result < 0) throw_io_error("make folder", path, result);
  sync_folder(posix, parent_of(path));
}

void sync_folder(Posix& posix, const std::string& path) {
  const OpenFile folder(posix, posix.open(path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) throw_io_error("sync folder", path, folder.get());
  const int result = posix.fsync(folder.get());
  // Some file systems keep names safe by themselves and say that there is nothing to sync.
  if (result < 0 && result != -EINVAL) throw_io_error("sync folder", path, result);
}

void sync_folders(Posix& posix, const std::string& path) {
  std::vector<FolderEntry> entries;
  if (const int result = posix.list(path, entries); result < 0) throw_io_error("sync folder", path, result);
  for (const FolderEntry& entry : entries) {
    if (entry.kind == PathKind::folder) sync_folders(posix, path + "/" + entry.name);
  }
  sync_folder(posix, path);
}

void remove_tree(Posix& posix, const std::string& path) {
  PathKind kind = PathKind::file;
  int result = posix.kind(path, kind);
  if (result == 0 && kind == PathKind::folder) {
    std::vector<FolderEntry> entries;
    result = posix.list(path, entries);
    for (const FolderEntry& entry : entries) remove_tree(posix, path + "/" + entry.name);
    if (result == 0) result = posix.rmdir(path);
  } else if (result == 0) {
    result = posix.unlink(path);
  }
  if (result < 0 && result != -ENOENT && result != -ENOTDIR) throw_io_error("remove", path, result);
}

std::vector<BesideName> names_beside(Posix& posix, const std::string& folder) {
  std::vector<FolderEntry> entries;
  const int result = posix.list(parent_of(folder), entries);
  if (result == -ENOENT || result == -ENOTDIR) return {};
  if (result < 0) throw_io_error("list", parent_of(folder), result);
  std::vector<BesideName> found;
  for (const FolderEntry& entry : entries) {
    std::optional<BesideName> name = parse_beside(entry.name);
    if (name && name->folder == name_of(folder)) found.push_back(std::move(*name));
  }
  std::ranges::sort(found, {}, &BesideName::id);
  return found;
}

std::string follow_links(Posix& posix, std::string path) {
  constexpr int kMostLinks = 40;  // the kernel's number
  for (int links = 0; links < kMostLinks; ++links) {
    std::string target;
    if (posix.read_link(path, target) < 0) return path;  // no link, or not there
    path = clean_path(target.starts_with('/') ? target : parent_of(path) + "/" + target);
  }
  throw_io_error("follow links", path, ELOOP);
}

}  // namespace sherd
