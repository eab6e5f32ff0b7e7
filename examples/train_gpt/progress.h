#pragma once
// How far a loop is: a bar on a terminal, a line now and then anywhere else.

#include <string>

class Progress {
 public:
  explicit Progress(int total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of the total, and a note beside it. On a terminal it redraws its line; elsewhere it prints every tenth.
  void show(int done, const std::string& note);

 private:
  int total_;
  bool on_terminal_;
  bool line_is_open_ = false;
};
