#pragma once
// How far a loop is: a bar on a terminal, a line now and then anywhere else.

#include <chrono>
#include <string>

class Progress {
 public:
  /// `every`: how often a line is printed where there is no terminal.
  explicit Progress(int total, int every = 10);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of the total, and a note beside it. On a terminal it redraws its line; elsewhere it prints one now and
  /// then: the first, the last, and those between.
  void show(int done, const std::string& note);

 private:
  int total_;
  int every_;
  bool began_ = false;
  bool on_terminal_;
  bool line_is_open_ = false;
  std::chrono::steady_clock::time_point shown_ = {};  // the bar
};
