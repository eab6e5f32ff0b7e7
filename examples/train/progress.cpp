#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace {
constexpr int kCells = 30;
// Quick steps would fill the terminal's buffer, and then wait for it.
constexpr auto kLeastTimeBetween = std::chrono::milliseconds(100);
}  // namespace

Progress::Progress(int total, int every) : total_(total), every_(every), on_terminal_(isatty(STDOUT_FILENO) != 0) {}

// An error message that follows begins a line of its own.
Progress::~Progress() {
  if (line_is_open_) std::puts("");
}

void Progress::show(int done, const std::string& note) {
  if (on_terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (began_ && done < total_ && now - shown_ < kLeastTimeBetween) return;
    shown_ = now;
    std::string bar;
    for (int cell = 0; cell < kCells; ++cell) bar += cell * total_ < done * kCells ? "█" : "░";
    fmt::print("\r{} {}/{}  {}\x1b[K", bar, done, total_, note);
    line_is_open_ = done < total_;
    if (!line_is_open_) std::puts("");
  } else if (!began_ || done % every_ == 0 || done == total_) {
    fmt::print("step {}/{}  {}\n", done, total_, note);
  }
  began_ = true;
  std::fflush(stdout);
}
