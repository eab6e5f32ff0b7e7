#pragma once
// XXH3 as compiled for one kind of machine. No templates or inline functions in here: what a file for newer machines
// compiles must not be taken for what all use.

#include <cstddef>
#include <cstdint>

namespace sherd::format {

struct DigestFunctions {
  void (*whole)(const void* bytes, size_t size, uint64_t* low_high);
  // Of parts; the state is an XXH3_state_t.
  void (*reset)(void* state);
  void (*update)(void* state, const void* bytes, size_t size);
  void (*finish)(const void* state, uint64_t* low_high);
};

/// Null where this machine or this build has no AVX2.
const DigestFunctions* avx2_digest_functions();

}  // namespace sherd::format
