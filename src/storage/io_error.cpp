#include "storage/io_error.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "sherd/error.h"
#include "sherd/storage.h"
#include "storage/paths.h"

namespace sherd {
namespace {

std::string bytes_text(ByteRange bytes) { return fmt::format("[{}, {})", bytes.begin, bytes.end); }

// The nearest folder above that is there: where one looks, and where space is counted.
std::string folder_above(std::string_view path) {
  std::string folder = parent_of(clean_path(path));
  while (folder != "/" && folder != "." && ::access(folder.c_str(), F_OK) != 0) folder = parent_of(folder);
  return folder;
}

// The path was looked at, and there is no such file.
bool is_about_the_file(int error) { return error == ENOENT || error == ENOTDIR || error == EISDIR; }

std::string help_for(int error, std::string_view path) {
  const std::string folder = folder_above(path);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format("make room (df -h {}), or use a folder elsewhere; nothing that was there is lost", folder);
    case EACCES:
    case EPERM:
      return fmt::format("this program runs as user {}; ls -ld {} says who may enter and write there", ::geteuid(),
                         folder);
    case EROFS:
      return fmt::format("use another folder, or mount -o remount,rw $(stat -c %m {})", folder);
    case ENOENT:
      return fmt::format("ls -la {}", folder);
    case EFBIG:
      return "raise the limit for the size of a file: ulimit -f unlimited";
    case EMFILE:
    case ENFILE:
      return "raise the number of files that may be open: ulimit -n 65536";
    case EIO:
      return "the device failed; dmesg tells more";
    default:
      return {};
  }
}

}  // namespace

void throw_io_error(std::string_view operation, std::string_view path, int64_t error, std::optional<ByteRange> bytes) {
  const int number = static_cast<int>(std::abs(error));
  std::string why = std::generic_category().message(number);
  if (why.size() > 1 && std::islower(static_cast<unsigned char>(why[1])) != 0) {
    why[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(why[0])));
  }
  ErrorText text(operation, why);
  text.fact("file", path);
  if (bytes) text.fact("bytes", bytes_text(*bytes));
  if (number == ENOSPC) {
    struct statvfs space {};
    if (::statvfs(folder_above(path).c_str(), &space) == 0) {
      const auto block = static_cast<uint64_t>(space.f_frsize);
      text.fact("free", fmt::format("{} of {} bytes", space.f_bavail * block, space.f_blocks * block));
    }
  }
  if (const std::string help = help_for(number, path); !help.empty()) text.help(help);
  if (is_about_the_file(number)) throw std::runtime_error(text);
  throw StorageFailure(text);
}

void throw_too_short(std::string_view path, int64_t size, ByteRange wanted) {
  throw std::runtime_error(ErrorText("read", "the file is shorter than what is to be read from it")
                               .fact("file", path)
                               .fact("bytes", bytes_text(wanted))
                               .fact("size", fmt::format("{}", size))
                               .help("the file was cut off; use another copy or another checkpoint"));
}

void throw_no_such_file(std::string_view operation, std::string_view path) {
  throw std::runtime_error(ErrorText(operation, "no such file").fact("file", path));
}

void throw_incomplete_draft(std::string_view folder, std::string_view last) {
  throw std::runtime_error(ErrorText("commit", "the draft lacks the file that makes it complete, or was removed")
                               .fact("folder", folder)
                               .fact("file", last)
                               .help("write and finish that file before commit"));
}

}  // namespace sherd
