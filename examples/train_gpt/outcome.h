#pragma once
// What the demo has to tell: the two curves, where it resumed, how parameters lie, what one step sends, what
// each rank holds.

#include <string>
#include <vector>

#include "sherd/chart.h"
#include "sherd/comm_debug.h"
#include "sherd/layout.h"

struct ParameterPicture {
  std::string name;
  std::string text;  // drawn for a terminal
  sherd::Layout layout;
};

/// A part of the run on one mesh.
struct Leg {
  std::string mesh = {};
  int steps = 0;
  std::vector<ParameterPicture> pictures = {};
  std::vector<sherd::CommRecord> sent = {};  // by one step on rank 0
  bool fully_sharded = false;
  sherd::BarChart memory = {};  // of every rank, and of the one that trains alone
};

struct Outcome {
  int64_t ranks = 0;
  std::string device = {};
  std::string dtype = {};
  bool as_processes = false;
  double tolerance = 0;
  std::vector<double> sharded = {};  // the loss at every step
  std::vector<double> alone = {};
  double sharded_seconds = 0;
  double alone_seconds = 0;
  std::vector<Leg> legs = {};  // two with a checkpoint between them, or one
  int64_t checkpoint_bytes = 0;
  double save_seconds = 0;
  double load_seconds = 0;
};
