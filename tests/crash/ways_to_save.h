#pragma once
// Every way to save, for tests that stop it in the middle: the checkpoint has to be the old one or the new one.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sherd/sherd.h"

namespace sherd::testing {

/// Everything is saved here.
inline const std::string kFolder = "/runs";
inline const std::string kPath = kFolder + "/ck";

using StoragePointer = std::shared_ptr<Storage>;

/// What a program does that starts, saves and ends: it saves a number; and what one that starts after a crash finds:
/// the number, 0 where there is nothing. Everything that is there must be whole, or the test fails.
struct WayToSave {
  std::string name;
  std::function<void(const StoragePointer&, int ranks, double number)> save;
  std::function<double(const StoragePointer&)> found;
  int before = 1;  // so many saves come before the one that is stopped, where it is to be no first one
  /// Where it does not save each time: what a stop leaves there may stay for a while.
  std::string at_times = {};
};

/// Into files and folders of every format, in the background, on a base, converted, and one format over another.
std::vector<WayToSave> ways_to_save();
/// By a CheckpointManager, over others.
std::vector<WayToSave> ways_to_run();

/// A state on so many ranks that is told by its number.
StateDict state_of(double number, int ranks);
/// What is saved there. A mixture fails the test.
double number_at(const StoragePointer& storage, const std::string& path);

/// Nothing of stopped saves lies about any more.
void expect_no_leftovers(const WayToSave& way, const StoragePointer& storage);

}  // namespace sherd::testing
