#pragma once
// Memory that processes of one host share. It has no name in any file system, so that nothing is left behind however
// the processes end: it lives as long as somebody maps it or holds its descriptor.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sherd::detail {

/// A mapping. All functions throw std::system_error, saying which step failed.
class ShmSegment {
 public:
  ShmSegment() = default;
  /// Of the host's budget for shared memory, the file system /dev/shm. Its pages come with allocate().
  static ShmSegment create(size_t bytes);
  /// Of ordinary memory, whose pages come with the first write.
  static ShmSegment create_private(size_t bytes);
  /// What process `pid` holds as `descriptor`.
  static ShmSegment open(pid_t pid, int descriptor);
  ~ShmSegment();
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  /// Takes the memory of a part, so that no later access can fail. std::errc::no_space_on_device where there is none.
  void allocate(size_t offset, size_t bytes) const;
  /// No other process can open it from now on.
  void close_descriptor();

  bool empty() const { return data_ == nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

 private:
  ShmSegment(int descriptor, size_t bytes);

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A process, told apart from a later one with the same number.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  // when it began, in the kernel's ticks

  static ProcessId of(pid_t pid);
  /// False as soon as it has ended, even where its parent has not noticed yet.
  bool alive() const;
};

}  // namespace sherd::detail
