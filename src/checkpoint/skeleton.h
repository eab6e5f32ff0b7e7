#pragma once
// A state without the data of its tensors: what ranks tell each other before the data move.

#include <string>

#include "sherd/state_dict.h"

namespace sherd::detail {

/// Everything but the elements of tensors; tensors of one element are whole. Throws c10::ValueError naming the place of
/// a value that is distributed or a program's own.
std::string skeleton_of(const char* operation, const StateDict& state);

/// The state again, with meta tensors.
StateDict from_skeleton(const char* operation, const std::string& bytes);

/// Rank 0's state on every rank of the current world: itself there, its skeleton on the others. Communicates; throws on
/// every rank what rank 0's state is refused for.
StateDict told_by_rank0(const char* operation, const StateDict& state);

}  // namespace sherd::detail
