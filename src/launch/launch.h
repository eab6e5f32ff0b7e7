#pragma once
// Starts the ranks of a program as processes of this host: what `sherd run` does.

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace sherd {

struct LaunchOptions {
  std::vector<std::string> program;  // and its arguments; found on the PATH where it has no slash
  int ranks = 1;                     // on this host
  int nodes = 1;                     // hosts that run the same command
  int node_rank = 0;                 // which of them this is
  std::string master_addr;           // where rank 0 listens; empty on one host: 127.0.0.1
  int master_port = 0;               // 0: a free port on one host, 29500 on several
  bool prefix = true;                // "[2] " before each line that rank 2 prints
  std::chrono::milliseconds grace = std::chrono::seconds(5);  // between asking ranks to end and killing them
  int out = 1;  // file descriptors that the ranks' stdout and stderr go to
  int err = 2;
};

/// Runs the ranks to their end and returns the exit code: 0 when every rank returned 0; otherwise that of the rank
/// that failed first, 128 + n where signal n killed it; 127 or 126 where the program cannot be started.
///
/// Output passes through line by line, never mixed within a line, stdout and stderr apart; a last line without a
/// line break is printed with one. Every rank is the leader of a process group. When a rank fails, one line on `err`
/// says so, and all other groups get SIGTERM, then after `grace` SIGKILL. SIGINT, SIGTERM and SIGHUP go on to all
/// ranks; a second one ends them as a failure does, a third kills them. Nothing that stayed in a rank's group
/// survives the call. Rank 0 reads the caller's stdin unless that is a terminal; the others read nothing.
///
/// Blocks those signals in the calling thread while it runs; call it from a program's only thread.
/// Throws std::invalid_argument for options that contradict each other.
int launch(const LaunchOptions& options);

/// The variables that rank `local_rank` of this host is given beside the caller's own. OMP_NUM_THREADS is among them
/// only where the caller has none.
std::map<std::string, std::string> rank_environment(const LaunchOptions& options, int local_rank);

}  // namespace sherd
