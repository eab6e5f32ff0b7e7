#pragma once
#include <stdexcept>

namespace sherd {

/// There is a checkpoint, but files of it are missing or too short, or their bytes are not those that were saved, or no
/// such format allows them.
class DamagedCheckpoint : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sherd
