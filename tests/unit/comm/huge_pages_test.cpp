// Asking for huge pages never fails and never changes what a tensor holds.

#include "comm/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace sherd::detail {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// How much of the mapping that holds `at` lies in huge pages, in KiB; -1 where the kernel does not say.
int64_t huge_kib_at(const void* at) {
  std::ifstream file("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    int64_t kib = 0;
    if (inside && std::sscanf(line.c_str(), "AnonHugePages: %ld kB", &kib) == 1) return kib;
  }
  return -1;
}

bool kernel_asks_programs() {
  std::string mode;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::getline(file, mode);
  return mode.find("[madvise]") != std::string::npos;
}

TEST(HugePagesTest, ALargeTensorLiesInThem) {
  if (!kernel_asks_programs()) GTEST_SKIP() << "the kernel does not ask programs";
  const at::Tensor tensor = empty_large({64 * kMiB}, torch::kByte);
  tensor.fill_(1);
  const auto* middle = static_cast<const std::byte*>(tensor.const_data_ptr()) + 32 * kMiB;
  EXPECT_GT(huge_kib_at(middle), 0);
}

// Uneven shards have a little less than even ones, and are to be as fast.
TEST(HugePagesTest, ALittleLessThanFourMebibytesDo) {
  if (!kernel_asks_programs()) GTEST_SKIP() << "the kernel does not ask programs";
  constexpr int64_t kBytes = 4 * kMiB - 4096;
  void* memory = ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const at::Tensor tensor = torch::from_blob(static_cast<std::byte*>(memory) + 64, {kBytes}, torch::kByte);
  ask_for_huge_pages(tensor);
  tensor.fill_(1);
  EXPECT_GT(huge_kib_at(tensor.const_data_ptr()), 0);
  ::munmap(memory, 2 * kBytes);
}

TEST(HugePagesTest, KeepsWhatIsThere) {
  const at::Tensor whole = torch::arange(4 * kMiB, torch::kInt);
  ask_for_huge_pages(whole);
  ask_for_huge_pages(whole.narrow(0, 3, 3 * kMiB));             // begins anywhere
  ask_for_huge_pages(whole.view({2048, -1}).narrow(1, 0, 17));  // not in one piece
  ask_for_huge_pages(whole.view({2048, -1}).t());
  EXPECT_TRUE(whole.equal(torch::arange(4 * kMiB, torch::kInt)));
}

TEST(HugePagesTest, NothingHappensForWhatHasNoneToAsk) {
  errno = 0;
  ask_for_huge_pages(torch::empty({0}));
  ask_for_huge_pages(torch::empty({}));
  ask_for_huge_pages(torch::empty({10}));
  ask_for_huge_pages(torch::empty({64 * kMiB}, torch::kMeta));
  ask_for_huge_pages(torch::zeros({1}).expand({64 * kMiB}));
  EXPECT_EQ(empty_large({3, 0, 5}, torch::kDouble).sizes(), at::IntArrayRef({3, 0, 5}));
  EXPECT_TRUE(empty_large({64 * kMiB}, torch::TensorOptions(torch::kMeta)).is_meta());
  EXPECT_EQ(errno, 0);
}

TEST(HugePagesTest, MemoryOfOthersMayBeReadOnly) {
  constexpr size_t kBytes = 16 << 20;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const at::Tensor tensor = torch::from_blob(memory, {static_cast<int64_t>(kBytes)}, torch::kByte);
  ask_for_huge_pages(tensor);
  EXPECT_EQ(tensor.sum().item<int64_t>(), 0);
  ::munmap(memory, kBytes);
}

TEST(HugePagesTest, TensorsOfAGpuAreLeftAlone) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const at::Tensor tensor = empty_large({16 * kMiB}, torch::TensorOptions(torch::kByte).device(torch::kCUDA));
  tensor.fill_(3);
  EXPECT_EQ(tensor[5].item<int64_t>(), 3);
}

}  // namespace
}  // namespace sherd::detail
