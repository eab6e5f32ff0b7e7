#include "launch/line_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace sherd {
namespace {

constexpr size_t kLongestLine = 1 << 20;

}  // namespace

bool LineWriter::write(std::string_view bytes) {
  std::string lines;
  while (true) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) break;
    lines.append(prefix_).append(partial_).append(bytes.substr(0, end + 1));
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
  partial_.append(bytes);
  const bool written = write_all(fd_, lines);
  return partial_.size() > kLongestLine ? flush() && written : written;
}

bool LineWriter::flush() {
  if (partial_.empty()) return true;
  const std::string line = prefix_ + partial_ + "\n";
  partial_.clear();
  return write_all(fd_, line);
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace sherd
