#include "plain_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace {

class File {
 public:
  File(const std::string& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (number_ < 0) throw std::system_error(errno, std::generic_category(), path);
  }
  ~File() { close(number_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail(const std::string& path) { throw std::system_error(errno, std::generic_category(), path); }

int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) << 10;
  }
  throw std::runtime_error("/proc/self/status: no " + name);
}

}  // namespace

void plain_write(const std::string& path, std::span<const std::byte> bytes, size_t step) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count =
        pwrite(file.number(), bytes.data() + at, std::min(step, bytes.size() - at), static_cast<off_t>(at));
    if (count <= 0) fail(path);
    at += static_cast<size_t>(count);
  }
  if (fsync(file.number()) != 0) fail(path);
}

void plain_read(const std::string& path, std::span<std::byte> into, size_t step) {
  const File file(path, O_RDONLY);
  for (size_t at = 0; at < into.size();) {
    const ssize_t count =
        pread(file.number(), into.data() + at, std::min(step, into.size() - at), static_cast<off_t>(at));
    if (count <= 0) fail(path);
    at += static_cast<size_t>(count);
  }
}

bool forget_cached_files() {
  sync();
  std::ofstream file("/proc/sys/vm/drop_caches");
  file << "3" << std::flush;
  return file.good();
}

int64_t memory_now() { return status_bytes("VmRSS"); }
int64_t most_memory() { return status_bytes("VmHWM"); }
void forget_most_memory() { std::ofstream("/proc/self/clear_refs") << "5" << std::flush; }
