#include "metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(fmt::format("metrics: cannot write the file\n  file: {}\n  cause: {}\n  help: --out FOLDER",
                                       path, std::strerror(errno)));
}

// The head and the rows up to step `done`. A row without its end was being written when the program was killed.
std::string rows_until(const std::string& path, const std::string& head, int64_t done) {
  std::string text = head + "\n";
  std::ifstream file(path);
  std::string line;
  if (done == 0 || !std::getline(file, line) || line != head) return text;
  for (int64_t last = 0; std::getline(file, line) && !file.eof();) {
    const int64_t step = std::strtoll(line.c_str(), nullptr, 10);
    if (step <= last || step > done) break;
    text += line + "\n";
    last = step;
  }
  return text;
}

}  // namespace

Metrics::Metrics(std::string path, const std::string& counted, int64_t done) : path_(std::move(path)) {
  const std::string text = rows_until(path_, fmt::format("step,loss,gradient_norm,{}_per_second", counted), done);
  const std::string draft = path_ + ".new";
  file_.reset(std::fopen(draft.c_str(), "w"));
  if (!file_ || std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail(path_);
  std::fflush(file_.get());
  std::error_code error;
  std::filesystem::rename(draft, path_, error);  // the file that is open goes with it
  if (error) fail(path_);
}

void Metrics::add(const StepMetrics& row) {
  fmt::print(file_.get(), "{},{:.17g},{:.6g},{:.1f}\n", row.step, row.loss, row.gradient_norm, row.per_second);
  if (std::fflush(file_.get()) != 0) fail(path_);
}
