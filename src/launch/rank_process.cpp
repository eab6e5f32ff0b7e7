#include "launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace sherd {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close(read);
    close(write);
  }
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int take_read() { return std::exchange(read, -1); }
};

/// The C arrays that exec wants, made before the fork: the child may not allocate.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

/// Runs in the child; returns errno where something failed. Only calls that are safe after fork.
int become(char* const* program, char* const* variables, const Pipe& out, const Pipe& err, bool keep_stdin,
           pid_t parent) {
  if (::setpgid(0, 0) != 0) return errno;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != parent) return ESRCH;  // it died before the line above

  if (!keep_stdin) {
    const int null = ::open("/dev/null", O_RDONLY);
    if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) return errno;
    ::close(null);
  }
  if (::dup2(out.write, STDOUT_FILENO) < 0 || ::dup2(err.write, STDERR_FILENO) < 0) return errno;

  ::signal(SIGPIPE, SIG_DFL);  // the launcher ignores it
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(program[0], program, variables);
  return errno;
}

}  // namespace

RankProcess::RankProcess(const std::vector<std::string>& program, const std::map<std::string, std::string>& variables,
                         bool keep_stdin) {
  const auto environment = merged_environment(variables);
  const auto program_pointers = pointers(program);
  const auto environment_pointers = pointers(environment);
  Pipe out, err, status;  // status closes on exec; an errno in it says that exec failed
  const pid_t parent = ::getpid();

  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    const int error = become(program_pointers.data(), environment_pointers.data(), out, err, keep_stdin, parent);
    [[maybe_unused]] const ssize_t told = ::write(status.write, &error, sizeof error);
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // here too: whoever comes first
  Pipe::close(status.write);
  int error = 0;
  ssize_t got;
  while ((got = ::read(status.read, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw std::system_error(error, std::generic_category(), program.front());
  }
  out_ = out.take_read();
  err_ = err.take_read();
  ::fcntl(out_, F_SETFL, O_NONBLOCK);
  ::fcntl(err_, F_SETFL, O_NONBLOCK);
}

RankProcess::~RankProcess() {
  signal(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::close(out_);
  ::close(err_);
}

void RankProcess::signal(int number) const { ::kill(-pid_, number); }

std::optional<Ending> RankProcess::ending() {
  if (ending_) return ending_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  ending_ = info.si_code == CLD_EXITED ? Ending{.code = info.si_status} : Ending{.signal = info.si_status};
  return ending_;
}

}  // namespace sherd
