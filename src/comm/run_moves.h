#pragma once
// Collectives of elements that do not lie in one piece: a transport whose ranks see each other's memory, or share some,
// takes them from where they lie and puts them where they belong, without a copy on either side.

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/byte_runs.h"
#include "comm/call.h"
#include "sherd/group.h"

namespace sherd::detail {

/// What this rank gives and takes, for each member of a group; the two sides of a message have equally many bytes, in
/// whatever runs. On the CPU.
struct RunMove {
  std::vector<ByteRuns> gives;
  std::vector<ByteRuns> takes;
  at::Tensor like;  // says dtype and device
};

/// A transport that can do it. The tensors of the call only say how many elements of which dtype each block has.
class TakesRuns {
 public:
  virtual ~TakesRuns() = default;
  virtual void run_runs(const Call& call, const RunMove& move) = 0;
};

/// Whether the group's transport can do it: the same on every rank. Where it cannot, elements are packed and go by the
/// collectives of sherd/collectives.h, which meet these: whether a rank packs is its own affair.
bool moves_runs(const Group& group, c10::DeviceType device, const char* operation);

/// As all_to_all. Returns when it is done.
void all_to_all_runs(const Group& group, const RunMove& move);
/// As all_gather_uneven: `gives` has one entry, which goes to all.
void all_gather_runs(const Group& group, const RunMove& move);

}  // namespace sherd::detail
