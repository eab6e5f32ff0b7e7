#pragma once
// One rank as a process: start it, read what it prints, learn how it ended.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sherd {

/// How a process ended: its exit code, or the signal that killed it.
struct Ending {
  int code = 0;
  int signal = 0;
  bool failed() const { return code != 0 || signal != 0; }
  /// What a shell returns: the code, or 128 + signal.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
};

/// A running rank, leader of its own process group. It is reaped by the destructor alone: until then neither its id
/// nor its group's can belong to anyone else, so signals go where they should.
class RankProcess {
 public:
  /// Starts `program` with `variables` put over this process's environment. The child starts with no
  /// signal blocked, and is killed if the thread that started it dies.
  /// Throws std::system_error with the errno where the program cannot be executed.
  RankProcess(const std::vector<std::string>& program, const std::map<std::string, std::string>& variables,
              bool keep_stdin);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  /// Reading ends of its stdout and stderr. They do not block. Closed by the destructor.
  int out() const { return out_; }
  int err() const { return err_; }

  /// Sends a signal to its process group.
  void signal(int number) const;

  /// How it ended, or nothing while it runs.
  std::optional<Ending> ending();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::optional<Ending> ending_;
};

}  // namespace sherd
