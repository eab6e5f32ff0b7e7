#pragma once
// A state on its way into a checkpoint: what this rank has of it, and what all ranks make of it together.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/dcp.h"
#include "format/manifest.h"
#include "plan/save.h"
#include "sherd/group.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// One leaf on this rank.
struct SavedLeaf {
  /// What a rank knows of the others' parts of a tensor.
  enum class Known : uint8_t {
    object,   // it is no tensor
    whole,    // every rank that has the key has all of it
    layout,   // what each rank of a mesh holds
    shards,   // the boxes of all ranks
    nothing,  // this rank's own boxes alone
  };

  std::string name;
  StatePath path;
  StateValue value;
  Known known = Known::object;

  // Of tensors.
  std::shared_ptr<const Checkpointable> tensor;
  format::DType dtype = format::DType::f32;
  bool requires_grad = false;
  std::optional<Dims> size = {};  // nothing where a rank that holds no box of a user's own tensor-like does not know it
  std::optional<Layout> layout = {};
  std::vector<std::pair<int64_t, Box>> shards = {};  // world rank, box
};

/// The leaves of this rank's state. Throws c10::ValueError naming the key for what cannot be saved.
std::vector<SavedLeaf> leaves_of(const char* operation, const StateDict& state);

/// A tensor or an object of the checkpoint as a whole.
struct AgreedLeaf {
  std::string name;
  std::vector<format::PathPart> path;
  bool is_tensor = false;
  int32_t writer = 0;  // of an object: the first rank that has it
  format::DType dtype = format::DType::f32;
  bool requires_grad = false;
  Dims size;
  plan::WrittenChunks chunks;
};

/// The same on every rank of the group.
struct AgreedState {
  std::vector<AgreedLeaf> leaves;
  std::vector<int64_t> bytes;  // of tensors' elements, per rank
};

/// What all ranks save, and who writes it. The ranks compare a digest of what they have; where all have the same and
/// know it, that is all. `first_words` is said along with it, and all answers are returned; where it throws on any
/// rank, it throws on all. Throws c10::ValueError on all ranks where the parts of a tensor overlap, leave a hole or do
/// not fit together.
struct Agreement {
  std::shared_ptr<const AgreedState> state;
  std::vector<std::string> words;
};
Agreement agree_on_state(const char* operation, const Group& group,
                         const std::function<std::vector<SavedLeaf>()>& get_leaves,
                         const std::function<std::string()>& first_words, std::vector<SavedLeaf>& leaves);

}  // namespace sherd::detail
