#pragma once
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011): random bits as a function of a counter. Word k of draw `offset`
// of seed `seed` is lane k % 4 of the block with counter (k / 4, offset) and key seed.
//
// Compiled for the CPU, again for its vector instructions, and for CUDA. Only what stands in an unnamed namespace may
// be instantiated from here: the linker must not give one compilation's code to the other.

#include <cstdint>

#if defined(__CUDACC__)
#define SHERD_ANYWHERE __host__ __device__ __forceinline__
#else
#define SHERD_ANYWHERE inline __attribute__((always_inline))
#endif

namespace sherd::detail {
namespace {

struct PhiloxBlock {
  uint32_t words[4];  // NOLINT(modernize-avoid-c-arrays): also compiled for CUDA
};

SHERD_ANYWHERE PhiloxBlock philox(uint64_t seed, uint64_t offset, uint64_t block) {
  auto a = static_cast<uint32_t>(block);
  auto b = static_cast<uint32_t>(block >> 32);
  auto c = static_cast<uint32_t>(offset);
  auto d = static_cast<uint32_t>(offset >> 32);
  auto key = static_cast<uint32_t>(seed);
  auto other_key = static_cast<uint32_t>(seed >> 32);
#if defined(__CUDACC__)
#pragma unroll
#else
#pragma GCC unroll 10
#endif
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * a;
    const uint64_t right = uint64_t{0xCD9E8D57} * c;
    a = static_cast<uint32_t>(right >> 32) ^ b ^ key;
    b = static_cast<uint32_t>(right);
    c = static_cast<uint32_t>(left >> 32) ^ d ^ other_key;
    d = static_cast<uint32_t>(left);
    key += 0x9E3779B9;
    other_key += 0xBB67AE85;
  }
  return {{a, b, c, d}};
}

}  // namespace
}  // namespace sherd::detail
