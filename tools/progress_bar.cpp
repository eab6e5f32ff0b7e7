#include "progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/redistribute.h"
#include "terminal.h"

namespace sherd::tools {
namespace {

using plan::bytes_text;

constexpr std::chrono::milliseconds kBetween{100};
constexpr int kBarWidth = 24;

std::string time_text(double seconds) {
  const int64_t whole = std::llround(std::min(seconds, 359999.0));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string title) : title_(std::move(title)), shown_(is_terminal(stderr)) {}

ProgressBar::~ProgressBar() {
  if (drawn_once_) fmt::print(stderr, "\r\033[K");
}

Progress ProgressBar::callback() {
  return [this](int64_t done, int64_t total) { report(done, total); };
}

void ProgressBar::report(int64_t done, int64_t total) {
  throw_if_interrupted();
  if (!shown_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now - drawn_ < kBetween) return;
  drawn_ = now;
  drawn_once_ = true;
  draw(done, total, std::chrono::duration<double>(now - start_).count());
}

void ProgressBar::draw(int64_t done, int64_t total, double seconds) {
  const double part = total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  const double rate = static_cast<double>(done) / seconds;
  const int full = static_cast<int>(part * kBarWidth);
  std::string line =
      fmt::format("{}  [{}{}] {:3.0f} %  {} of {}", title_, std::string(full, '#'), std::string(kBarWidth - full, ' '),
                  std::floor(part * 100), bytes_text(done), bytes_text(total));
  line += fmt::format("  {}/s", bytes_text(static_cast<int64_t>(rate)));
  if (rate > 0) line += fmt::format("  {} left", time_text(static_cast<double>(total - done) / rate));
  const auto width = static_cast<size_t>(width_of(stderr).value_or(80) - 1);
  fmt::print(stderr, "\r\033[K{}", line.substr(0, width));
  std::fflush(stderr);
}

}  // namespace sherd::tools
