#pragma once
// Whether the calls that ranks make at the same time fit together.

#include <string>
#include <vector>

#include "comm/call.h"

namespace sherd::detail {

/// What one rank's call promises to the others, without its tensors.
struct CallShape {
  std::string kind;            // what must be equal on all ranks: collective, reduction, root, dtype
  std::vector<int64_t> gives;  // elements for rank i; -1: no opinion
  std::vector<int64_t> takes;  // elements from rank i; -1: no opinion
  std::string description;     // for people
};

/// Throws c10::ValueError where a call has lists of blocks that are not one per rank. `ranks` are the world's numbers,
/// for the text.
void check_blocks_per_rank(const Call& call, const std::vector<int64_t>& ranks);

CallShape shape_of(const Call& call, int size);

/// True when all are of one kind and everybody takes what is given to it.
bool fit_together(const std::vector<CallShape>& shapes);
/// The same answer for calls at hand; allocates nothing.
bool fit_together(const std::vector<const Call*>& calls);

/// The same for calls written down as numbers, where tensors cannot go: one list for each rank. The lists have
/// numbers_of_call(size) entries; 1 + k is what the rank gives rank k, and -1 stands for no opinion.
inline size_t numbers_of_call(int size) { return 1 + 2 * static_cast<size_t>(size); }
void write_numbers(const Call& call, int size, int64_t* numbers);
bool fit_together(const int64_t* const* calls, int size);

/// The same for ranks that learn three numbers of each other, however many they are: calls that do not fit together
/// have sums that differ, but for a chance of one in 2^64.
struct CallSums {
  int64_t kind = 0;    // what must be equal on all ranks
  uint64_t gives = 0;  // a sum over what the rank gives to whom
  uint64_t takes = 0;  // a sum over what it takes from whom; those of all ranks add up to the gives of all ranks
};
CallSums sums_of(const Call& call, int rank, int size);
bool fit_together(const std::vector<CallSums>& calls);

/// Of a kind or a description that goes to other ranks; longer ones are cut.
inline constexpr size_t kTextBytes = 512;

/// A fixed number of bytes for a given group size, so that ranks can exchange shapes whatever they call.
std::string encode(const CallShape& shape);
CallShape decode(const std::string& bytes, int size);

}  // namespace sherd::detail
