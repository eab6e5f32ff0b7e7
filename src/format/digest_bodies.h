// The bodies of DigestFunctions, for the instructions that the including file is compiled for.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "format/digest_functions.h"

namespace sherd::format {
namespace {

void put(const XXH128_hash_t& hash, uint64_t* low_high) {
  low_high[0] = hash.low64;
  low_high[1] = hash.high64;
}
void digest_whole(const void* bytes, size_t size, uint64_t* low_high) { put(XXH3_128bits(bytes, size), low_high); }
void digest_reset(void* state) { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state)); }
void digest_update(void* state, const void* bytes, size_t size) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
}
void digest_finish(const void* state, uint64_t* low_high) {
  put(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state)), low_high);
}

constexpr DigestFunctions kFunctions = {digest_whole, digest_reset, digest_update, digest_finish};

}  // namespace
}  // namespace sherd::format
