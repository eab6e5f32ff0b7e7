// libFuzzer: every offer of a rank to share blocks.

#include <cstddef>
#include <cstdint>

#include "checkpoint/block_offer.h"
#include "fuzz/messages_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sherd::detail;
  using namespace sherd::testing;
  const std::string input(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] {
    const BlockOffer offer = decode_offer(input);
    int64_t blocks = 0;
    for (const BlockRange& range : offer.wanted)
      must_hold(!__builtin_add_overflow(blocks, range.end - range.begin, &blocks), "more blocks than can be counted");
    if (!input.empty()) must_hold(decode_offer(encode(offer)) == offer, "what was written reads differently");
  });
  return 0;
}
