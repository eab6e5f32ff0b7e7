#include "comm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace sherd::detail {
namespace {

constexpr const char* kFolder = "/dev/shm";

[[noreturn]] void refuse(int error, const std::string& step) {
  throw std::system_error(error, std::generic_category(), step);
}

// The state and the start of a process, of /proc/<pid>/stat; false where there is none.
bool read_stat(const std::string& process, char& state, uint64_t& start) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  std::istringstream words(text.substr(text.rfind(')') + 1));  // the name before it may hold anything
  std::string word;
  words >> state;
  constexpr int kBetween = 18;  // fields 4 to 21
  for (int i = 0; i < kBetween; ++i) words >> word;
  words >> start;
  return !words.fail();
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
  return read_stat(std::to_string(pid), state, began) && began == start && state != 'Z' && state != 'X';
}

}  // namespace sherd::detail
