#pragma once
// Worlds of processes for tests.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <regex>
#include <string>
#include <vector>

#include "command.h"

namespace sherd::testing {

/// A socket that listens at a port of the system's choice for as long as it lives.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const std::string& port() const { return port_; }

 private:
  int fd_;
  std::string port_;
};

inline std::string free_port() {
  const Listener listener;
  return listener.port();
}

struct RanksOptions {
  std::vector<std::string> variables = {};
  std::vector<std::string> hosts = {};  // of each rank; empty: all are on this one
  std::string port = free_port();
  int first = 0;  // the lowest rank that is started
};

/// The ranks of one world, started by hand: nobody ends the others when one fails. Each has 25 s; the exit code of one
/// that hangs is 124.
class Ranks {
 public:
  Ranks(int started, int world_size, const std::vector<std::string>& program, const RanksOptions& options = {})
      : port(options.port) {
    for (int rank = options.first; rank < options.first + started; ++rank) {
      std::vector<std::string> words = {"timeout",
                                        "25",
                                        "env",
                                        "RANK=" + std::to_string(rank),
                                        "WORLD_SIZE=" + std::to_string(world_size),
                                        "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=" + port,
                                        "OMP_NUM_THREADS=1"};
      if (!options.hosts.empty()) words.push_back("SHERD_HOST=" + options.hosts[static_cast<size_t>(rank)]);
      words.insert(words.end(), options.variables.begin(), options.variables.end());
      words.insert(words.end(), program.begin(), program.end());
      commands_.emplace_back(words);
    }
    const auto start = std::chrono::steady_clock::now();
    for (Command& command : commands_) {
      codes.push_back(command.wait());
      // What the transport said differs from case to case.
      out.push_back(std::regex_replace(command.out(), std::regex("\n  cause: [^\n]+\n"), "\n  cause: ...\n"));
      err.push_back(command.err());
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::string port;
  double seconds = 0;
  std::vector<int> codes;
  std::vector<std::string> out;
  std::vector<std::string> err;

 private:
  std::list<Command> commands_;
};

}  // namespace sherd::testing
