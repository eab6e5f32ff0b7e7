#pragma once
// One collective call of one rank, in a form that every transport of ours shares.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "comm/purpose.h"
#include "sherd/placement.h"

namespace sherd::detail {

enum class Collective : uint8_t {
  all_gather,      // outputs[i] = rank i's inputs[0]
  gather,          // the same, at the root alone
  all_to_all,      // outputs[i] = rank i's inputs[me]
  scatter,         // outputs[0] = the root's inputs[me]
  broadcast,       // outputs[0] = the root's inputs[0]
  all_reduce,      // outputs[0] = the reduction of inputs[0]; the two are one tensor
  reduce,          // the same, at the root alone
  reduce_scatter,  // outputs[0] = the reduction of the ranks' inputs[me]
  barrier,
  send,
  receive,
};

const char* name_of(Collective kind);

/// False for a message, in which two ranks take part: there is nothing to compare with the others.
inline bool all_ranks_call(Collective kind) { return kind != Collective::send && kind != Collective::receive; }

struct Call {
  Collective kind = Collective::barrier;
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
  ReduceOp op = ReduceOp::sum;
  int root = -1;
  PurposePtr purpose = current_purpose();
};

/// "all_reduce(sum) f32[4096]": what an error shows of a call.
std::string describe(const Call& call);
/// The same with what it is for: "redistribute f32[8@tp] on [tp=2] -> (R) on [tp=2]: all_gather f32[4]".
std::string describe_with_purpose(const Call& call);

/// "f32", "bf16", "i64": the project's dtype names.
std::string dtype_name(c10::ScalarType type);

}  // namespace sherd::detail
