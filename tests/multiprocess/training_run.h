#pragma once
// Training programs as processes: how they are started, and what they leave.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "multiprocess/ranks.h"

namespace sherd::testing {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Words under_sherd_run(int ranks, const Words& program) {
  return sherd_command({"run", "-n", std::to_string(ranks), "--"}) + program;
}

/// The losses of metrics.csv. Its steps must be 1, 2, 3, ...; `counted` is what it counts by the second.
inline std::vector<double> losses_in(const std::string& out, const std::string& counted = "tokens") {
  const auto lines = split_lines(read_text(out + "/metrics.csv"));
  std::vector<double> losses;
  EXPECT_FALSE(lines.empty());
  if (lines.empty()) return losses;
  EXPECT_EQ(lines[0], "step,loss,gradient_norm," + counted + "_per_second");
  for (size_t i = 1; i < lines.size(); ++i) {
    long step = 0;
    double loss = 0, norm = 0, speed = 0;
    EXPECT_EQ(std::sscanf(lines[i].c_str(), "%ld,%lf,%lf,%lf", &step, &loss, &norm, &speed), 4) << lines[i];
    EXPECT_GT(norm, 0);
    EXPECT_EQ(step, static_cast<long>(i));
    EXPECT_GT(speed, 0);
    losses.push_back(loss);
  }
  return losses;
}

/// Starts a run without an end and waits until it has made `steps` steps.
class EndlessRun {
 public:
  EndlessRun(const Words& words, const std::string& out, size_t steps) : command(words + Words{"--steps", "1000000"}) {
    for (int i = 0; i < 6000 && split_lines(read_text(out + "/metrics.csv")).size() <= steps; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Command command;
};

}  // namespace sherd::testing
