// Which of the two ways of reading is taken.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "command.h"
#include "conformance/storage.h"
#include "storage/disk.h"
#include "stored/block_file.h"

namespace sherd::testing {
namespace {

// Counts the pieces that threads read.
class CountingPosix final : public Posix {
 public:
  ssize_t pread(int file, std::span<std::byte> into, int64_t offset) override {
    ++reads;
    return Posix::pread(file, into, offset);
  }
  std::atomic<int> reads = 0;
};

bool kernel_has_io_uring() {
  io_uring_params parameters;
  std::memset(&parameters, 0, sizeof parameters);
  const auto ring = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters));
  if (ring >= 0) ::close(ring);
  return ring >= 0;
}

// As containers do it: io_uring_setup is not permitted.
void forbid_io_uring() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = 4, .filter = program};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

class IoUringTest : public ::testing::Test {
 protected:
  // Reads a file in parts of the size and says how many preads that took; -1 where it read something wrong.
  int preads(size_t count, size_t size, bool io_uring = true) {
    const std::string text = pattern(count * size);
    const auto posix = std::make_shared<CountingPosix>();
    const auto storage = disk_storage(Disk{.posix = posix, .options = {.io_uring = io_uring}});
    save(*storage, folder_.path().string() + "/a", "1", text);
    std::vector<std::string> parts(count, std::string(size, '?'));
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < count; ++i) requests.push_back({static_cast<int64_t>(i * size), bytes_of(parts[i])});
    storage->open(folder_.path().string() + "/a/last")->read(requests);
    for (size_t i = 0; i < count; ++i) {
      if (parts[i] != text.substr(i * size, size)) return -1;
    }
    return posix->reads;
  }

  TempFolder folder_;
};

TEST_F(IoUringTest, ManySmallReadsTakeNoPreadWhereTheKernelHasARing) {
  EXPECT_EQ(preads(1000, 100), kernel_has_io_uring() && SHERD_HAS_URING ? 0 : 1000);
  EXPECT_EQ(preads(1000, 100, false), 1000);
}

TEST_F(IoUringTest, FewOrLargeReadsAreCalls) {
  EXPECT_EQ(preads(10, 100), 10);
  EXPECT_EQ(preads(70, 100'000), 70);
}

// Columns of wide rows: what a rank takes of a checkpoint without digests.
TEST_F(IoUringTest, ScatteredPartsOfACheckpointsFileGoThroughIt) {
  constexpr int64_t kRow = 50'000;
  constexpr int64_t kRows = 100;
  const std::string text = pattern(kRows * kRow);
  const auto posix = std::make_shared<CountingPosix>();
  const auto storage = disk_storage(Disk{.posix = posix});
  save(*storage, folder_.path().string() + "/a", "1", text);
  const stored::OpenOptions options;
  stored::BlockFile file("a", storage->open(folder_.path().string() + "/a/last"), nullptr, options);
  std::vector<std::string> parts(kRows, std::string(1000, '?'));
  const std::string reader = "tensor w";
  for (int64_t i = 0; i < kRows; ++i) {
    file.want({i * kRow + 300, 1000, bytes_of(parts[static_cast<size_t>(i)]).data()}, reader);
  }
  file.read_wanted();
  for (size_t i = 0; i < kRows; ++i) EXPECT_EQ(parts[i], text.substr(i * kRow + 300, 1000));
  EXPECT_EQ(posix->reads, kernel_has_io_uring() && SHERD_HAS_URING ? 0 : kRows);
}

TEST_F(IoUringTest, AKernelThatRefusesIoUringIsReadByThreads) {
  const pid_t child = ::fork();
  if (child == 0) {
    forbid_io_uring();
    ::_exit(!kernel_has_io_uring() && preads(1000, 100) == 1000 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sherd::testing
