// What the user is told when a disk does not do as it should, and what is left then.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "command.h"
#include "conformance/storage.h"
#include "storage/disk.h"

namespace sherd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

// System calls one of which fails.
class FailingPosix final : public Posix {
 public:
  int pread_error = 0;
  int pwrite_error = 0;
  int open_error = 0;
  int fsync_error = 0;
  int exchange_error = 0;
  int unlink_error = 0;

  int open(const std::string& path, int flags) override {
    return open_error != 0 && (flags & O_DIRECTORY) == 0 ? -open_error : Posix::open(path, flags);
  }
  ssize_t pread(int file, std::span<std::byte> into, int64_t offset) override {
    return pread_error != 0 ? -pread_error : Posix::pread(file, into, offset);
  }
  ssize_t pwrite(int file, std::span<const std::byte> bytes, int64_t offset) override {
    // What is full is full after some bytes.
    if (pwrite_error != 0 && offset > 0) return -pwrite_error;
    return Posix::pwrite(file, pwrite_error != 0 ? bytes.first(bytes.size() / 2) : bytes, offset);
  }
  int fsync(int file) override { return fsync_error != 0 ? -fsync_error : Posix::fsync(file); }
  int exchange(const std::string& one, const std::string& other) override {
    return exchange_error != 0 ? -exchange_error : Posix::exchange(one, other);
  }
  int unlink(const std::string& path) override { return unlink_error != 0 ? -unlink_error : Posix::unlink(path); }
};

// Whether it throws as a storage that fails; false where it throws as for a file that is not there.
template <class Work>
bool is_failure_of_storage(const Work& work) {
  try {
    work();
  } catch (const StorageFailure&) {
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
  ADD_FAILURE() << "no error";
  return false;
}

class StorageErrorsTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path().string() + "/" + name; }

  TempFolder folder_;
  std::shared_ptr<FailingPosix> posix_ = std::make_shared<FailingPosix>();
  std::shared_ptr<Storage> storage_ = disk_storage(Disk{.posix = posix_});
};

TEST_F(StorageErrorsTest, AStorageThatFailsIsToldFromAFileThatIsNotThere) {
  const auto storage = disk_storage(Disk{.posix = posix_, .options = {.io_uring = false}});
  save(*storage, at("a"), "1", "hello");
  for (const int error : {EACCES, EMFILE, ENFILE, EIO, ENOMEM, ESTALE}) {
    posix_->open_error = error;
    EXPECT_TRUE(is_failure_of_storage([&] { storage->open(at("a/last")); })) << error;
    posix_->open_error = 0;
    posix_->pread_error = error;
    EXPECT_TRUE(is_failure_of_storage([&] { read_all(*storage, at("a/last")); })) << error;
    posix_->pread_error = 0;
  }
  EXPECT_FALSE(is_failure_of_storage([&] { storage->open(at("b/last")); }));
  EXPECT_FALSE(is_failure_of_storage([&] { storage->open(at("a/last/more")); }));
  EXPECT_FALSE(is_failure_of_storage([&] { storage->open(at("a")); }));
  std::string more(10, '?');
  const ReadRequest request{3, bytes_of(more)};
  EXPECT_FALSE(is_failure_of_storage([&] { storage->open(at("a/last"))->read({&request, 1}); }));
}

TEST_F(StorageErrorsTest, AFileThatIsNotThere) {
  save(*storage_, at("a"), "1", "text");
  EXPECT_EQ(error_of([&] { storage_->open(at("a/nothing")); }),
            "open: no such file or directory\n  file: " + at("a/nothing") + "\n  help: ls -la " + at("a"));
  EXPECT_EQ(
      error_of([&] { storage_->open(at("b/c/nothing")); }),
      "open: no such file or directory\n  file: " + at("b/c/nothing") + "\n  help: ls -la " + folder_.path().string());
}

TEST_F(StorageErrorsTest, AFileCutOffWhileItIsOpen) {
  save(*storage_, at("a"), "1", pattern(1000));
  const auto file = storage_->open(at("a/last"));
  std::filesystem::resize_file(at("a/last"), 100);
  std::string text(1000, '?');
  const ReadRequest request{0, bytes_of(text)};
  EXPECT_EQ(
      error_of([&] {
        file->read({&request, 1});
      }),
      "read: the file is shorter than what is to be read from it\n  file: " + at("a/last") +
          "\n  bytes: [0, 1000)\n  size: 100\n  help: the file was cut off; use another copy or another checkpoint");
  EXPECT_EQ(text.substr(0, 100), pattern(100));
}

TEST_F(StorageErrorsTest, ManySmallReadsFromAFileCutOffWhileItIsOpen) {
  save(*storage_, at("a"), "1", pattern(100'000));
  const auto file = storage_->open(at("a/last"));
  std::filesystem::resize_file(at("a/last"), 60'050);
  std::vector<std::string> parts(1000, std::string(100, '?'));
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < parts.size(); ++i) requests.push_back({static_cast<int64_t>(i * 100), bytes_of(parts[i])});
  EXPECT_THAT(error_of([&] { file->read(requests); }), HasSubstr("bytes: [60000, 60100)\n  size: 60050"));
  EXPECT_EQ(parts[599], pattern(100'000).substr(59'900, 100));
}

TEST_F(StorageErrorsTest, AFileRemovedWhileItIsOpenIsReadToItsEnd) {
  save(*storage_, at("a"), "1", pattern(1000));
  const auto file = storage_->open(at("a/last"));
  storage_->remove(at("a"));
  std::string text(1000, '?');
  const ReadRequest request{0, bytes_of(text)};
  file->read({&request, 1});
  EXPECT_EQ(text, pattern(1000));
}

TEST_F(StorageErrorsTest, ADeviceThatFails) {
  save(*storage_, at("a"), "1", pattern(1000));
  const auto file = storage_->open(at("a/last"));
  posix_->pread_error = EIO;
  std::string text(10, '?');
  const ReadRequest request{5, bytes_of(text)};
  EXPECT_EQ(error_of([&] {
              file->read({&request, 1});
            }),
            "read: input/output error\n  file: " + at("a/last") +
                "\n  bytes: [5, 15)\n  help: the device failed; dmesg "
                "tells more");
}

TEST_F(StorageErrorsTest, AWriteThatFailsNamesTheBytesAndLeavesTheOldFolder) {
  save(*storage_, at("a"), "1", "old");
  posix_->pwrite_error = EIO;
  {
    const auto draft = storage_->draft(at("a"), "2");
    const auto writer = draft->create("last");
    EXPECT_EQ(error_of([&] { writer->write(0, bytes_of(pattern(1000))); }),
              "write: input/output error\n  file: " + at("a.tmp-2/last") +
                  "\n  bytes: [0, 1000)\n  help: the device failed; dmesg tells more");
    draft->discard();
  }
  EXPECT_THAT(storage_->list(at("")), ElementsAre("a"));
  EXPECT_THAT(storage_->drafts(at("a")), IsEmpty());
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
}

TEST_F(StorageErrorsTest, ASyncThatFailsIsNotPassedOver) {
  save(*storage_, at("a"), "1", "old");
  const auto draft = storage_->draft(at("a"), "2");
  const auto writer = draft->create("last");
  writer->write(0, bytes_of(pattern(1000)));
  posix_->fsync_error = EIO;
  EXPECT_THAT(error_of([&] { writer->finish(); }), HasSubstr("finish: input/output error\n  file: "));
  EXPECT_THAT(error_of([&] { draft->commit("last"); }), HasSubstr("sync folder: input/output error\n  file: "));
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
}

TEST_F(StorageErrorsTest, ACommitThatFailsLeavesTheOldFolder) {
  save(*storage_, at("a"), "1", "old");
  const auto draft = storage_->draft(at("a"), "2");
  write_all(*draft, "last", "new");
  posix_->exchange_error = EBUSY;
  EXPECT_EQ(error_of([&] { draft->commit("last"); }), "commit: device or resource busy\n  file: " + at("a"));
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
  posix_->exchange_error = 0;
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "new");
}

TEST_F(StorageErrorsTest, WhatCannotBeRemovedAfterACommitIsADraft) {
  save(*storage_, at("a"), "1", "old");
  posix_->unlink_error = EPERM;
  save(*storage_, at("a"), "2", "new");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "new");
  EXPECT_THAT(storage_->drafts(at("a")), ElementsAre("2"));
  posix_->unlink_error = 0;
  storage_->draft(at("a"), "2")->discard();
  EXPECT_THAT(storage_->drafts(at("a")), IsEmpty());
}

TEST_F(StorageErrorsTest, TooManyOpenFiles) {
  save(*storage_, at("a"), "1", "old");
  posix_->open_error = EMFILE;
  EXPECT_EQ(error_of([&] { storage_->open(at("a/last")); }),
            "open: too many open files\n  file: " + at("a/last") +
                "\n  help: raise the number of files that may be open: ulimit -n 65536");
}

TEST_F(StorageErrorsTest, AReadOnlyFileSystem) {
  save(*storage_, at("a"), "1", "old");
  posix_->open_error = EROFS;
  const auto draft = storage_->draft(at("a"), "2");
  EXPECT_EQ(error_of([&] { draft->create("last"); }), "write: read-only file system\n  file: " + at("a.tmp-2/last") +
                                                          "\n  help: use another folder, or mount -o remount,rw "
                                                          "$(stat -c %m " +
                                                          at("a.tmp-2") + ")");
}

TEST_F(StorageErrorsTest, AFileInTheWayOfAFolder) {
  std::ofstream(at("a")) << "a file";
  EXPECT_EQ(error_of([&] { storage_->draft(at("a/b"), "2"); }),
            "make folder: not a directory\n  file: " + at("a/b.tmp-2"));
}

// What a process of its own says: for what cannot be undone in this one.
template <class Work>
std::string in_child(const Work& work) {
  int pipe[2];
  if (::pipe(pipe) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = error_of(work);
    const bool written = ::write(pipe[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(pipe[1]);
  std::string text;
  char part[4096];
  for (ssize_t count = 0; (count = ::read(pipe[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(count));
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST_F(StorageErrorsTest, NoPermission) {
  save(*storage_, at("a"), "1", "old");
  ::chmod(at("").c_str(), 0755);
  ::chmod(at("a").c_str(), 0755);
  ::chmod(at("a/last").c_str(), 0);
  const auto as_nobody = [] { return ::geteuid() != 0 || ::setuid(65534) == 0; };
  const std::string user = std::to_string(::geteuid() == 0 ? 65534 : ::geteuid());
  const std::string help = "\n  help: this program runs as user " + user + "; ls -ld ";
  EXPECT_EQ(
      in_child([&] { as_nobody() && storage_->open(at("a/last")); }),
      "open: permission denied\n  file: " + at("a/last") + help + at("a") + " says who may enter and write there");
  ::chmod(at("").c_str(), 0555);
  EXPECT_EQ(in_child([&] { as_nobody() && storage_->draft(at("a"), "2"); }),
            "make folder: permission denied\n  file: " + at("a.tmp-2") + help + folder_.path().string() +
                " says who may enter and write there");
  EXPECT_THAT(in_child([&] { as_nobody() && (storage_->remove(at("a")), true); }),
              HasSubstr("remove: permission denied"));
  ::chmod(at("").c_str(), 0755);
  ::chmod(at("a/last").c_str(), 0644);
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
}

TEST_F(StorageErrorsTest, AFileLargerThanTheLimit) {
  const std::string text = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto writer = storage_->draft(at("a"), "1")->create("last");
    writer->write(0, bytes_of(pattern(1'000'000)));
  });
  EXPECT_EQ(text, "write: file too large\n  file: " + at("a.tmp-1/last") +
                      "\n  bytes: [0, 1000000)\n  help: raise the limit for the size of a file: ulimit -f unlimited");
}

// A small file system that this process and its children alone see. False where the machine does not let us.
bool mount_small(const std::string& place, const char* options) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  std::filesystem::create_directories(place);
  return ::mount("sherd-test", place.c_str(), "tmpfs", 0, options) == 0;
}

constexpr const char* kNoMount = "this machine lets nobody mount";

TEST_F(StorageErrorsTest, AFullDisk) {
  const std::string text = in_child([&] {
    const std::string disk = at("disk");
    if (!mount_small(disk, "size=1m")) throw std::runtime_error(kNoMount);
    save(*storage_, disk + "/a", "1", pattern(1000));
    const auto draft = storage_->draft(disk + "/a", "2");
    std::string texts = error_of([&] { draft->create("sized", 2'000'000); });
    texts += "\n" + error_of([&] { draft->create("last")->write(100, bytes_of(pattern(2'000'000))); });
    draft->discard();
    if (read_all(*storage_, disk + "/a/last") != pattern(1000)) texts += " and the old one is gone";
    save(*storage_, disk + "/a", "3", pattern(1000));  // there is room again
    throw std::runtime_error(texts);
  });
  if (text == kNoMount) GTEST_SKIP() << kNoMount;
  const std::string help = "\n  help: make room (df -h " + at("disk/a.tmp-2") +
                           "), or use a folder elsewhere; nothing that was there is lost";
  EXPECT_THAT(text, ::testing::StartsWith("write: no space left on device\n  file: " + at("disk/a.tmp-2/sized") +
                                          "\n  bytes: [0, 2000000)\n  free: "));
  EXPECT_THAT(text, HasSubstr(" of 1048576 bytes" + help +
                              "\nwrite: no space left on device\n  file: " + at("disk/a.tmp-2/last") +
                              "\n  bytes: [100, 2000100)\n  free: 0 of 1048576 bytes" + help));
}

TEST_F(StorageErrorsTest, ADiskMountedReadOnly) {
  const std::string text = in_child([&] {
    const std::string disk = at("disk");
    if (!mount_small(disk, "")) throw std::runtime_error(kNoMount);
    save(*storage_, disk + "/a", "1", "old");
    if (::mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      throw std::runtime_error(kNoMount);
    if (read_all(*storage_, disk + "/a/last") != "old") throw std::runtime_error("it cannot be read");
    storage_->draft(disk + "/a", "2");
  });
  if (text == kNoMount) GTEST_SKIP() << kNoMount;
  EXPECT_EQ(text, "make folder: read-only file system\n  file: " + at("disk/a.tmp-2") +
                      "\n  help: use another folder, or mount -o remount,rw $(stat -c %m " + at("disk") + ")");
}

}  // namespace
}  // namespace sherd::testing
