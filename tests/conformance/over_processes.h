#pragma once
// Ranks that are processes, for the conformance suite: forks of the test, which report by their exit code.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <iostream>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "command.h"
#include "conformance/transport.h"

namespace sherd::testing {

/// What a rank's process does; returns its exit code.
inline int run_forked_rank(const std::filesystem::path& file, int rank, int n, const RankBody& body,
                           const WorldOptions& options) {
  at::set_num_threads(1);  // the threads of the parent's pool are not here
  try {
    const World world = init_with_store(c10::make_intrusive<c10d::FileStore>(file.string(), n), rank, n, options);
    Rank self{world, world.group(), at::TensorOptions()};
    body(self);
    barrier(self.group);
  } catch (const std::exception& error) {
    std::cout << "rank " << rank << ": " << error.what() << std::endl;
    return 2;
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

/// A world of n forks of this process; a rank that fails ends with its output, and the test fails. `prepare` is called
/// in each of them first, with its rank and n.
inline std::function<void(int, const RankBody&)> over_processes(const WorldOptions& options,
                                                                const std::function<void(int, int)>& prepare = {}) {
  return [options, prepare](int n, const RankBody& body) {
    const TempFolder folder;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < n; ++rank) {
      std::cout.flush();
      const pid_t pid = ::fork();
      if (pid < 0) throw std::runtime_error("fork");
      if (pid == 0) {
        if (prepare) prepare(rank, n);
        const int code = run_forked_rank(folder.path() / "store", rank, n, body, options);
        std::cout.flush();
        ::_exit(code);
      }
      processes.push_back(pid);
    }
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      int status = 0;
      ::waitpid(processes[rank], &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " ended with " << status;
    }
  };
}

}  // namespace sherd::testing
