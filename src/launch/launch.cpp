#include "launch/launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "launch/line_writer.h"
#include "launch/rank_process.h"
#include "sherd/error.h"

namespace sherd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPortOfSeveralHosts = 29500;  // torch's
constexpr auto kPatienceAfterKill = std::chrono::seconds(1);

void check(const LaunchOptions& options) {
  const auto fail = [](std::string_view problem, std::string_view name, std::string_view value) {
    throw std::invalid_argument(
        ErrorText("run", problem).fact(name, value).help("sherd run -n 4 -- ./program arguments"));
  };
  if (options.program.empty()) fail("no program given", "program", "none");
  if (options.ranks < 1) fail("at least one rank is needed", "ranks", std::to_string(options.ranks));
  if (options.nodes < 1) fail("at least one host is needed", "nodes", std::to_string(options.nodes));
  if (options.node_rank < 0 || options.node_rank >= options.nodes)
    fail("node rank is out of range", "node rank", fmt::format("{} of {}", options.node_rank, options.nodes));
  if (options.master_port < 0 || options.master_port > 65535)
    fail("port is out of range", "port", std::to_string(options.master_port));
  if (options.grace.count() < 0)
    fail("the grace is negative", "grace", fmt::format("{} s", static_cast<double>(options.grace.count()) / 1000));
  if (options.nodes > 1 && options.master_addr.empty())
    throw std::invalid_argument(ErrorText("run", "several hosts need the address of the first")
                                    .fact("nodes", std::to_string(options.nodes))
                                    .help("sherd run -n 4 --nnodes 2 --node-rank 0 --master HOST:29500 -- ./program"));
}

/// A port that is free now. Someone may take it before rank 0 does; that rank then fails and says so.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool found = fd >= 0 && ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!found) throw std::system_error(error, std::generic_category(), "run: no free port");
  return ntohs(address.sin_port);
}

LaunchOptions with_master(LaunchOptions options) {
  const bool one_host = options.nodes == 1;
  if (options.master_addr.empty()) options.master_addr = "127.0.0.1";
  if (options.master_port == 0) options.master_port = one_host ? free_port() : kPortOfSeveralHosts;
  return options;
}

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

/// Turns the signals that concern the launcher into something to poll, and undoes that at the end. Those that the
/// caller ignores (SIGHUP under nohup) stay ignored, here and in the ranks.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    ::sigaddset(&wanted, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action;
      if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::sigaddset(&wanted, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &wanted, &old_mask_);
    fd_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "run: signalfd");
    old_pipe_ = ::signal(SIGPIPE, SIG_IGN);
    old_child_ = ::signal(SIGCHLD, SIG_DFL);  // an ignored SIGCHLD would lose exit codes
  }
  ~Signals() {
    ::close(fd_);
    ::signal(SIGCHLD, old_child_);
    ::signal(SIGPIPE, old_pipe_);
    ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  /// The next signal that arrived, 0 for none.
  int next() const {
    signalfd_siginfo info;
    return ::read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int fd_ = -1;
  sigset_t old_mask_;
  sighandler_t old_pipe_;
  sighandler_t old_child_;
};

/// One of a rank's two streams.
struct Stream {
  int fd;
  LineWriter writer;
  bool open = true;
};

struct Rank {
  int number;
  std::unique_ptr<RankProcess> process;
  std::array<Stream, 2> streams;
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}

  int run() {
    if (!start_ranks()) return exit_code_;
    while (!finished()) {
      wait();
      pass_signals_on();
      for (auto& rank : ranks_)
        for (auto& stream : rank.streams) read(stream);
      notice_endings();
      keep_deadline();
    }
    for (auto& rank : ranks_)
      for (auto& stream : rank.streams) stream.writer.flush();
    return exit_code_;
  }

 private:
  enum class Phase { running, ending, killing, abandoned };

  bool start_ranks() {
    const bool keep_stdin = ::isatty(STDIN_FILENO) == 0;
    for (int local = 0; local < options_.ranks; ++local) {
      const int number = options_.node_rank * options_.ranks + local;
      const std::string prefix = options_.prefix ? fmt::format("[{}] ", number) : "";
      try {
        auto process = std::make_unique<RankProcess>(options_.program, rank_environment(options_, local),
                                                     keep_stdin && number == 0);
        const int out = process->out();
        const int err = process->err();
        ranks_.push_back(
            {number,
             std::move(process),
             {Stream{out, LineWriter(options_.out, prefix)}, Stream{err, LineWriter(options_.err, prefix)}}});
      } catch (const std::system_error& error) {
        write_all(options_.err, ErrorText("run", fmt::format("cannot start rank {}", number))
                                        .fact("program", options_.program.front())
                                        .fact("cause", std::strerror(error.code().value()))
                                        .help("give the path of a program, or its name where it is on the PATH")
                                        .str() +
                                    "\n");
        exit_code_ = error.code().value() == EACCES ? 126 : 127;
        return false;
      }
    }
    return true;
  }

  bool all_ended() const {
    return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.process->ending().has_value(); });
  }
  bool all_closed() const {
    return std::ranges::all_of(ranks_, [](const Rank& rank) { return !rank.streams[0].open && !rank.streams[1].open; });
  }
  bool finished() const { return phase_ == Phase::abandoned || (all_ended() && all_closed()); }

  void wait() const {
    std::vector<pollfd> waiting = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const auto& rank : ranks_)
      for (const auto& stream : rank.streams)
        if (stream.open) waiting.push_back({.fd = stream.fd, .events = POLLIN, .revents = 0});
    int timeout = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
    }
    ::poll(waiting.data(), waiting.size(), timeout);
  }

  void pass_signals_on() {
    while (const int number = signals_.next()) {
      if (number == SIGCHLD) continue;
      ++interruptions_;
      if (interruptions_ == 1) signal_all(number);
      if (interruptions_ == 2) end_all();
      if (interruptions_ > 2) kill_all();
    }
  }

  /// Takes what a stream holds now: a pipe's fill, and not much more of what comes in meanwhile.
  void read(Stream& stream) {
    std::array<char, 1 << 16> bytes;
    for (int turn = 0; turn < 4 && stream.open; ++turn) {
      const ssize_t got = ::read(stream.fd, bytes.data(), bytes.size());
      if (got > 0) {
        if (!stream.writer.write({bytes.data(), static_cast<size_t>(got)})) lose_reader();
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        stream.open = false;
        if (!stream.writer.flush()) lose_reader();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  /// Nobody reads our output any more (`sherd run ... | head -1`): end as a program does that prints into nothing.
  void lose_reader() {
    if (exit_code_ == 0) exit_code_ = 128 + SIGPIPE;
    if (phase_ == Phase::running) end_all();
  }

  void notice_endings() {
    for (auto& rank : ranks_) {
      const auto ending = rank.process->ending();
      if (!ending || !ending->failed() || exit_code_ != 0) continue;
      exit_code_ = ending->exit_code();
      for (auto& stream : rank.streams) read(stream);  // its last words come before ours
      write_all(options_.err, describe(rank.number, *ending));
      if (phase_ == Phase::running) end_all();
    }
    // A rank's own children may still hold its streams. They get the grace to finish.
    if (!deadline_ && all_ended()) deadline_ = Clock::now() + options_.grace;
  }

  static std::string describe(int rank, const Ending& ending) {
    if (ending.signal != 0)
      return fmt::format("run: rank {} was killed by signal {} ({})\n", rank, ending.signal,
                         ::strsignal(ending.signal));
    return fmt::format("run: rank {} exited with code {}\n", rank, ending.code);
  }

  void signal_all(int number) const {
    for (const auto& rank : ranks_) rank.process->signal(number);
  }

  void end_all() {
    phase_ = Phase::ending;
    deadline_ = Clock::now() + options_.grace;
    signal_all(SIGTERM);
  }

  void kill_all() {
    phase_ = Phase::killing;
    deadline_ = Clock::now() + kPatienceAfterKill;
    signal_all(SIGKILL);
  }

  void keep_deadline() {
    if (!deadline_ || Clock::now() < *deadline_) return;
    // Whoever still holds a stream after a kill has left the rank's group: it is not ours to wait for.
    if (phase_ == Phase::killing)
      phase_ = Phase::abandoned;
    else
      kill_all();
  }

  const LaunchOptions& options_;
  Signals signals_;  // before the ranks: it must see all of their endings
  std::vector<Rank> ranks_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> deadline_;
  int interruptions_ = 0;
  int exit_code_ = 0;
};

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  const LaunchOptions complete = with_master(options);
  return Launcher(complete).run();
}

std::map<std::string, std::string> rank_environment(const LaunchOptions& options, int local_rank) {
  std::map<std::string, std::string> result = {
      {"RANK", std::to_string(options.node_rank * options.ranks + local_rank)},
      {"WORLD_SIZE", std::to_string(options.nodes * options.ranks)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", std::to_string(options.master_port)},
  };
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    result["OMP_NUM_THREADS"] = std::to_string(std::max(1, usable_cores() / options.ranks));
  return result;
}

}  // namespace sherd
