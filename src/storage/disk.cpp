#include "storage/disk.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "storage/disk_folder.h"
#include "storage/io_error.h"
#include "storage/paths.h"

namespace sherd {
namespace {

bool is_absent(int result) { return result == -ENOENT || result == -ENOTDIR; }

class DiskStorage final : public Storage {
 public:
  explicit DiskStorage(Disk disk) : disk_(std::move(disk)) {}

  std::unique_ptr<StoredFile> open(const std::string& path) const override {
    return open_disk_file(disk_, clean_path(path));
  }

  bool exists(const std::string& path) const override {
    const std::string place = find_on_disk(posix(), clean_path(path));
    PathKind kind = PathKind::file;
    const int result = posix().kind(place, kind);
    if (result < 0 && !is_absent(result)) throw_io_error("look for", place, result);
    return result == 0;
  }

  std::vector<std::string> list(const std::string& folder) const override {
    std::set<std::string> names;
    for (const FolderEntry& entry : entries(folder)) {
      const std::optional<BesideName> beside = parse_beside(entry.name);
      if (!beside) {
        names.insert(entry.name);
      } else if (beside->what == Beside::old) {
        names.insert(beside->folder);  // which is found there where it is not in its own place
      }
    }
    return {names.begin(), names.end()};
  }

  bool is_folder(const std::string& path) const override {
    PathKind kind = PathKind::file;
    const std::string place = follow_links(posix(), find_on_disk(posix(), clean_path(path)));
    return posix().kind(place, kind) == 0 && kind == PathKind::folder;
  }

  void remove(const std::string& path) override {
    const std::string place = clean_path(path);
    // The former ones first, or they would come back in the place of what is removed.
    for (const BesideName& name : names_beside(posix(), place)) {
      if (name.what == Beside::old) remove_at_once(place, beside(place, Beside::old, name.id));
    }
    remove_at_once(place, place);
  }

  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    check_draft(folder, id);
    return open_disk_draft(disk_, follow_links(posix(), clean_path(folder)), id);
  }

  std::vector<std::string> drafts(const std::string& folder) const override {
    std::vector<std::string> ids;
    for (const BesideName& name : names_beside(posix(), follow_links(posix(), clean_path(folder)))) {
      if (name.what == Beside::draft) ids.push_back(name.id);
    }
    return ids;
  }

  std::vector<DraftName> drafts_in(const std::string& folder) const override {
    std::vector<DraftName> found;
    for (const FolderEntry& entry : entries(folder)) {
      const std::optional<BesideName> beside = parse_beside(entry.name);
      if (beside && beside->what == Beside::draft) found.push_back({join(folder, beside->folder), beside->id});
    }
    return found;
  }

  // Absolute, without "." and doubled or trailing slashes; links and ".." are not followed.
  std::string full_path(const std::string& path) const override {
    std::string from = path;
    if (!from.starts_with('/')) {
      std::string here(PATH_MAX, '\0');
      if (::getcwd(here.data(), here.size()) != nullptr) from = here.c_str() + ("/" + from);
    }
    std::string full;
    for (size_t at = 0; at < from.size();) {
      const size_t end = std::min(from.find('/', at), from.size());
      const std::string part = from.substr(at, end - at);
      if (!part.empty() && part != ".") full += "/" + part;
      at = end + 1;
    }
    return full.empty() ? "/" : full;
  }

 private:
  Posix& posix() const { return *disk_.posix; }

  // What stands for `folder` leaves in one step, as it came: half of a checkpoint is none.
  void remove_at_once(const std::string& folder, const std::string& place) {
    PathKind kind = PathKind::file;
    int result = posix().kind(place, kind);
    if (result < 0 || kind != PathKind::folder) return remove_tree(posix(), place);
    const std::string leaving = beside(folder, Beside::draft, new_id());
    result = posix().rename(place, leaving);
    if (result < 0) throw_io_error("remove", place, result);
    sync_folder(posix(), parent_of(place));
    remove_tree(posix(), leaving);
  }

  std::vector<FolderEntry> entries(const std::string& folder) const {
    const std::string place = find_on_disk(posix(), clean_path(folder));
    std::vector<FolderEntry> entries;
    const int result = posix().list(place, entries);
    if (result < 0 && !is_absent(result)) throw_io_error("list", place, result);
    return entries;
  }

  Disk disk_;
};

}  // namespace

std::string find_on_disk(Posix& posix, const std::string& path) {
  PathKind kind = PathKind::file;
  if (!is_absent(posix.kind(path, kind)) || path == "/" || path == ".") return path;
  const std::string parent = parent_of(path);
  const std::string parent_place = find_on_disk(posix, parent);
  if (parent_place != parent) return parent_place + "/" + name_of(path);
  std::vector<FolderEntry> entries;
  posix.list(parent, entries);  // one that may not be listed: the error will be that of `path`
  for (const FolderEntry& entry : entries) {
    const std::optional<BesideName> name = parse_beside(entry.name);
    if (name && name->what == Beside::old && name->folder == name_of(path)) return beside(path, Beside::old, name->id);
  }
  return path;
}

std::shared_ptr<Storage> disk_storage(Disk disk) { return std::make_shared<DiskStorage>(std::move(disk)); }

std::shared_ptr<Storage> disk_storage(const DiskOptions& options) { return disk_storage(Disk{.options = options}); }

}  // namespace sherd
