#pragma once
// Runs a program for a test and keeps what it printed.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sherd::testing {

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// A folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sherd-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A program that was started. Its output goes to files, so a test may look at it while it runs.
class Command {
 public:
  explicit Command(const std::vector<std::string>& words, const std::string& input = "") {
    std::ofstream(folder_.path() / "in") << input;
    std::vector<char*> pointers;
    for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    const std::array<std::string, 3> files = {path("in"), path("out"), path("err")};
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      for (int fd = 0; fd < 3; ++fd) {
        const int file = ::open(files[static_cast<size_t>(fd)].c_str(), fd == 0 ? O_RDONLY : O_WRONLY | O_CREAT, 0600);
        ::dup2(file, fd);
      }
      ::execvp(pointers[0], pointers.data());
      ::_exit(99);
    }
  }
  ~Command() {
    if (running_) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  std::string out() const { return read_text(path("out")); }
  std::string err() const { return read_text(path("err")); }
  void signal(int number) const { ::kill(pid_, number); }

  /// The exit code, 128 + signal where one killed it.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    running_ = false;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  /// Waits until stdout has `lines` lines. False after ten seconds.
  bool wait_for_lines(size_t lines) const {
    for (int i = 0; i < 1000; ++i) {
      if (split_lines(out()).size() >= lines) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  std::string path(const char* name) const { return (folder_.path() / name).string(); }

  TempFolder folder_;
  pid_t pid_ = -1;
  bool running_ = true;
};

struct Result {
  int code;
  std::string out;
  std::string err;
};

inline Result run_command(const std::vector<std::string>& words, const std::string& input = "") {
  Command command(words, input);
  const int code = command.wait();
  return {code, command.out(), command.err()};
}

/// The `sherd` command of this build with the words given.
inline std::vector<std::string> sherd_command(std::vector<std::string> words) {
  words.insert(words.begin(), SHERD_BINARY_DIR "/bin/sherd");
  return words;
}

}  // namespace sherd::testing
