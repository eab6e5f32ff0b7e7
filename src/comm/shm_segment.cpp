#include "comm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <system_error>
#include <utility>

#include "comm/host.h"

namespace sherd::detail {
namespace {

constexpr const char* kFolder = "/dev/shm";

[[noreturn]] void refuse(int error, const std::string& step) {
  throw std::system_error(error, std::generic_category(), step);
}

// The state and the start of a process, of /proc/<pid>/stat; false where there is none.
bool read_stat(const std::string& process, char& state, uint64_t& start) {
  const std::string text = read_text("/proc/" + process + "/stat");
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  size_t at = name_end + 2;
  if (at >= text.size()) return false;
  state = text[at];
  constexpr int kFields = 19;  // from the state, field 3, to the start, field 22
  for (int i = 0; i < kFields; ++i) {
    at = text.find(' ', at);
    if (at == std::string::npos) return false;
    ++at;
  }
  return std::from_chars(text.data() + at, text.data() + text.size(), start).ec == std::errc();
}

}  // namespace

ShmSegment::ShmSegment(int descriptor, size_t bytes) : descriptor_(descriptor), size_(bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor);
    refuse(error, "mmap");
  }
  data_ = static_cast<std::byte*>(data);
}

ShmSegment ShmSegment::create(size_t bytes) {
  const int descriptor = ::open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) refuse(errno, std::string("open ") + kFolder);
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::close(descriptor);
    refuse(error, "ftruncate");
  }
  return {descriptor, bytes};
}

ShmSegment ShmSegment::create_private(size_t bytes) {
  const int descriptor = ::memfd_create("sherd-message", MFD_CLOEXEC);
  if (descriptor < 0) refuse(errno, "memfd_create");
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::close(descriptor);
    refuse(error, "ftruncate");
  }
  return {descriptor, bytes};
}

ShmSegment ShmSegment::open(pid_t pid, int descriptor) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) refuse(errno, "open " + path);
  struct stat status {};
  if (::fstat(own, &status) != 0 || status.st_size <= 0) {
    ::close(own);
    refuse(EINVAL, "fstat " + path);
  }
  return {own, static_cast<size_t>(status.st_size)};
}

ShmSegment::~ShmSegment() {
  if (data_ != nullptr) ::munmap(data_, size_);
  close_descriptor();
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  ShmSegment old(std::move(*this));
  descriptor_ = std::exchange(other.descriptor_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void ShmSegment::allocate(size_t offset, size_t bytes) const {
  const int error = ::posix_fallocate(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0) refuse(error, "posix_fallocate");
}

void ShmSegment::close_descriptor() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

ProcessId ProcessId::of(pid_t pid) {
  ProcessId id{.pid = pid};
  char state = 0;
  read_stat(std::to_string(pid), state, id.start);
  return id;
}

bool ProcessId::alive() const {
  char state = 0;
  uint64_t began = 0;
  // Where this process has no descriptor left to read with, the kernel still knows.
  if (!read_stat(std::to_string(pid), state, began)) return ::kill(pid, 0) == 0 || errno == EPERM;
  return began == start && state != 'Z' && state != 'X';
}

}  // namespace sherd::detail
