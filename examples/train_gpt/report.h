#pragma once
// What the demo has to tell: the two curves, how parameters lie, what one step sends.

#include <string>
#include <vector>

#include "sherd/collectives.h"
#include "sherd/layout.h"

struct ParameterPicture {
  std::string name;
  std::string text;  // drawn for a terminal
  sherd::Layout layout;
};

struct Report {
  int64_t ranks = 0;
  std::string mesh = {};
  std::string device = {};
  std::string dtype = {};
  bool as_processes = false;
  double tolerance = 0;
  std::vector<double> sharded = {};  // the loss at every step
  std::vector<double> alone = {};
  double sharded_seconds = 0;
  double alone_seconds = 0;
  std::vector<ParameterPicture> pictures = {};
  std::vector<sherd::CollectiveCall> calls = {};  // of one step on rank 0
  std::string collectives = {};                   // the same as text
};
