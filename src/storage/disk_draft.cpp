// A draft is the folder `<folder>.tmp-<id>` beside the one that it is to become.
//
// Commit puts it in place by one rename, or where there is a folder already, by one exchange; what was there then has
// the draft's name and is removed. Where the file system cannot exchange, there are two steps: the folder becomes
// `<folder>.old-<new id>`, and the draft the folder. Between them readers find the former one by find_on_disk, and the
// next commit or removal clears it away. A draft of one file that is to have the path itself is a folder, too.

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "storage/disk.h"
#include "storage/disk_folder.h"
#include "storage/io_error.h"
#include "storage/paths.h"

namespace sherd {
namespace {

class DiskDraft final : public Draft {
 public:
  DiskDraft(const Disk& disk, std::string folder, const std::string& id)
      : disk_(disk), folder_(std::move(folder)), draft_(beside(folder_, Beside::draft, id)) {
    make_folders(posix(), draft_);
  }

  std::unique_ptr<FileWriter> create(const std::string& name, int64_t size) override {
    if (name != kItself) check_file_name(name);
    const std::string path = place_of(name);
    if (name.find('/') != std::string::npos) make_folders(posix(), parent_of(path));
    return create_disk_file(disk_, path, size);
  }

  bool has(const std::string& name) const override {
    PathKind kind = PathKind::file;
    return posix().kind(place_of(name), kind) >= 0;
  }

  void commit(const std::string& last) override {
    PathKind kind = PathKind::file;
    if (posix().kind(place_of(last), kind) < 0) throw_incomplete_draft(folder_, last);
    sync_folders(posix(), draft_);
    put_in_place(last == kItself ? place_of(last) : draft_);
    sync_folder(posix(), parent_of(folder_));
    clean_up();
  }

  void discard() noexcept override {
    try {
      remove_tree(posix(), draft_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): what is left is a stale draft, which the next one finds
    }
  }

 private:
  Posix& posix() const { return *disk_.posix; }

  std::string place_of(const std::string& name) const { return draft_ + "/" + (name == kItself ? "itself" : name); }

  void put_in_place(const std::string& from) {
    int result = posix().exchange(from, folder_);
    if (result == 0) return;
    if (result == -EINVAL || result == -ENOSYS) {
      PathKind kind = PathKind::file;
      result = posix().kind(folder_, kind);
      if (result == 0) {
        // There is to be one former folder only, or readers would not know which.
        remove_former();
        sync_folder(posix(), parent_of(folder_));
        result = posix().rename(folder_, beside(folder_, Beside::old, new_id()));
      }
      // The first step must not be lost where the second is not.
      if (result == 0) sync_folder(posix(), parent_of(folder_));
    }
    if (result == 0 || result == -ENOENT) result = posix().rename(from, folder_);
    if (result < 0) throw_io_error("commit", folder_, result);
  }

  // The new folder is in place: a failure here is none of the commit, and leaves what drafts() lists.
  void clean_up() {
    try {
      remove_tree(posix(), draft_);  // after an exchange, what was there before
      remove_former();
    } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch)
    }
  }

  // Nobody looks at them while the folder is there.
  void remove_former() {
    for (const BesideName& name : names_beside(posix(), folder_)) {
      if (name.what == Beside::old) remove_tree(posix(), beside(folder_, Beside::old, name.id));
    }
  }

  Disk disk_;
  std::string folder_;
  std::string draft_;
};

}  // namespace

std::unique_ptr<Draft> open_disk_draft(const Disk& disk, const std::string& folder, const std::string& id) {
  return std::make_unique<DiskDraft>(disk, folder, id);
}

}  // namespace sherd
