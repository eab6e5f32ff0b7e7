#include "crash/simulated_disk.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/paths.h"

namespace sherd::testing {

bool SimulatedDisk::goes_on() {
  if (stopped_) return false;
  if (operations_ == stop_) {
    stopped_ = true;
    throw PowerLoss();
  }
  ++operations_;
  return true;
}

SimulatedDisk::NodePointer SimulatedDisk::find(const std::string& path) const {
  if (path == "/") return root_;
  const NodePointer parent = find(parent_of(path));
  if (!parent || !parent->is_folder) return nullptr;
  const auto found = parent->names.find(name_of(path));
  return found == parent->names.end() ? nullptr : found->second;
}

void SimulatedDisk::change(const std::string& parent, const Names& names) {
  const NodePointer folder = find(parent);
  for (const auto& [name, node] : names) {
    if (node) {
      folder->names[name] = node;
    } else {
      folder->names.erase(name);
    }
  }
  folder->changes.push_back(names);
}

void SimulatedDisk::move(const Names& paths) {
  std::map<std::string, Names> by_folder;
  for (const auto& [path, node] : paths) by_folder[parent_of(path)][name_of(path)] = node;
  for (const auto& [folder, names] : by_folder) change(folder, names);
}

SimulatedDisk::NodePointer SimulatedDisk::copy(const NodePointer& node, Survivors survivors, std::mt19937& random) {
  const auto result = std::make_shared<Node>(Node{.is_folder = node->is_folder});
  const auto choose = [&](size_t most) {
    return survivors.kind == Survivors::none ? 0 : survivors.kind == Survivors::all ? most : random() % (most + 1);
  };
  if (!node->is_folder) {
    // A file that grew and was not synced has some of its bytes, and zeros.
    result->data = choose(1) == 1 ? node->data : node->synced_data;
    if (survivors.kind == Survivors::some && node->data != node->synced_data && random() % 2 == 1) {
      result->data = node->data;
      std::fill(result->data.begin() + static_cast<int64_t>(random() % (node->data.size() + 1)), result->data.end(),
                '\0');
    }
    result->synced_data = result->data;
    return result;
  }
  Names names = node->synced_names;
  const size_t kept = choose(node->changes.size());
  for (size_t i = 0; i < kept; ++i) {
    for (const auto& [name, target] : node->changes[i]) {
      if (target) {
        names[name] = target;
      } else {
        names.erase(name);
      }
    }
  }
  for (const auto& [name, target] : names) result->names[name] = copy(target, survivors, random);
  result->synced_names = result->names;
  return result;
}

std::shared_ptr<SimulatedDisk> SimulatedDisk::after_restart(Survivors survivors) const {
  std::mt19937 random(survivors.seed);  // NOLINT: the same every time
  const auto disk = std::make_shared<SimulatedDisk>(can_exchange_);
  disk->root_ = copy(root_, survivors, random);
  return disk;
}

int SimulatedDisk::open(const std::string& path, int flags) {
  NodePointer node = find(path);
  if ((flags & O_CREAT) != 0) {
    if (!goes_on()) return -EIO;
    if (!node) {
      const NodePointer parent = find(parent_of(path));
      if (!parent) return -ENOENT;
      node = std::make_shared<Node>();
      change(parent_of(path), {{name_of(path), node}});
    }
    if ((flags & O_TRUNC) != 0) node->data.clear();
  }
  if (!node) return -ENOENT;
  open_[next_file_] = node;
  return next_file_++;
}

void SimulatedDisk::close(int file) { open_.erase(file); }

int64_t SimulatedDisk::size(int file) { return static_cast<int64_t>(open_.at(file)->data.size()); }

ssize_t SimulatedDisk::pread(int file, std::span<std::byte> into, int64_t offset) {
  const std::string& data = open_.at(file)->data;
  const auto begin = std::min(static_cast<size_t>(offset), data.size());
  const size_t count = std::min(into.size(), data.size() - begin);
  std::memcpy(into.data(), data.data() + begin, count);
  return static_cast<ssize_t>(count);
}

ssize_t SimulatedDisk::pwrite(int file, std::span<const std::byte> bytes, int64_t offset) {
  if (!goes_on()) return -EIO;
  std::string& data = open_.at(file)->data;
  // A call may write less than it was asked for.
  const size_t count = (bytes.size() + 1) / 2;
  data.resize(std::max(data.size(), static_cast<size_t>(offset) + count));
  std::memcpy(data.data() + offset, bytes.data(), count);
  return static_cast<ssize_t>(count);
}

int SimulatedDisk::reserve(int /*file*/, int64_t /*size*/) { return goes_on() ? 0 : -EIO; }

int SimulatedDisk::truncate(int file, int64_t size) {
  if (!goes_on()) return -EIO;
  open_.at(file)->data.resize(static_cast<size_t>(size));
  return 0;
}

int SimulatedDisk::start_writing(int /*file*/) { return goes_on() ? 0 : -EIO; }

int SimulatedDisk::fsync(int file) {
  if (!goes_on()) return -EIO;
  Node& node = *open_.at(file);
  node.synced_data = node.data;
  node.synced_names = node.names;
  node.changes.clear();
  return 0;
}

int SimulatedDisk::kind(const std::string& path, PathKind& kind) {
  const NodePointer node = find(path);
  if (!node) return -ENOENT;
  kind = node->is_folder ? PathKind::folder : PathKind::file;
  return 0;
}

int SimulatedDisk::list(const std::string& folder, std::vector<FolderEntry>& entries) {
  const NodePointer node = find(folder);
  if (!node) return -ENOENT;
  if (!node->is_folder) return -ENOTDIR;
  for (const auto& [name, entry] : node->names) {
    entries.push_back({name, entry->is_folder ? PathKind::folder : PathKind::file});
  }
  return 0;
}

int SimulatedDisk::read_link(const std::string& path, std::string& /*target*/) {
  return find(path) ? -EINVAL : -ENOENT;
}

int SimulatedDisk::mkdir(const std::string& path) {
  if (!goes_on()) return -EIO;
  if (find(path)) return -EEXIST;
  if (!find(parent_of(path))) return -ENOENT;
  change(parent_of(path), {{name_of(path), std::make_shared<Node>(Node{.is_folder = true})}});
  return 0;
}

int SimulatedDisk::rename(const std::string& from, const std::string& to) {
  if (!goes_on()) return -EIO;
  const NodePointer node = find(from);
  if (!node) return -ENOENT;
  const NodePointer there = find(to);
  if (there && there->is_folder && !there->names.empty()) return -ENOTEMPTY;
  if (there && there->is_folder != node->is_folder) return there->is_folder ? -EISDIR : -ENOTDIR;
  move({{from, nullptr}, {to, node}});
  return 0;
}

int SimulatedDisk::exchange(const std::string& one, const std::string& other) {
  if (!goes_on()) return -EIO;
  if (!can_exchange_) return -EINVAL;
  const NodePointer first = find(one);
  const NodePointer second = find(other);
  if (!first || !second) return -ENOENT;
  move({{one, second}, {other, first}});
  return 0;
}

int SimulatedDisk::unlink(const std::string& path) {
  if (!goes_on()) return -EIO;
  const NodePointer node = find(path);
  if (!node) return -ENOENT;
  if (node->is_folder) return -EISDIR;
  change(parent_of(path), {{name_of(path), nullptr}});
  return 0;
}

int SimulatedDisk::rmdir(const std::string& path) {
  if (!goes_on()) return -EIO;
  const NodePointer node = find(path);
  if (!node) return -ENOENT;
  if (!node->names.empty()) return -ENOTEMPTY;
  change(parent_of(path), {{name_of(path), nullptr}});
  return 0;
}

}  // namespace sherd::testing
