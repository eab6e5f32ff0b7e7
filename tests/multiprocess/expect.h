#pragma once
// What the programs of the tests check by: they count what is wrong and exit with it.

#include <cstdio>

inline int mistakes = 0;

inline void expect(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++mistakes;
}
