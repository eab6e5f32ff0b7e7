#pragma once
// A run's numbers as a file of CSV, one row for each step.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;
  double per_second = 0;
};

class Metrics {
 public:
  /// `counted` is what is counted by the second: "tokens". Goes on with the file after step `done`: rows of later steps
  /// are removed, since these steps are made again. Throws std::runtime_error where it cannot be written.
  Metrics(std::string path, const std::string& counted, int64_t done);

  /// Writes a row, so that another program sees it at once.
  void add(const StepMetrics& row);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};
