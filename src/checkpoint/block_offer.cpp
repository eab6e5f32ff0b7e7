#include "checkpoint/block_offer.h"

#include <tuple>

#include "format/manifest.h"
#include "sharded/bytes.h"

namespace sherd::detail {

std::string encode(const BlockOffer& offer) {
  ByteWriter out;
  out.put_text(offer.host);
  out.put(offer.pid);
  out.put(offer.descriptor);
  out.put(offer.token);
  out.put(static_cast<uint64_t>(offer.wanted.size()));
  for (const BlockRange& range : offer.wanted) {
    out.put(range.file);
    out.put(range.begin);
    out.put(range.end);
  }
  return out.take();
}

BlockOffer decode_offer(const std::string& bytes) {
  BlockOffer offer;
  if (bytes.empty()) return offer;
  ByteReader in("load", bytes);
  offer.host = in.get_text();
  offer.pid = in.get<pid_t>();
  offer.descriptor = in.get<int>();
  offer.token = in.get<uint64_t>();
  for (auto count = in.get<uint64_t>(); count > 0; --count) {
    BlockRange range;
    range.file = in.get<int32_t>();
    range.begin = in.get<int64_t>();
    range.end = in.get<int64_t>();
    const bool follows = offer.wanted.empty() || std::pair(offer.wanted.back().file, offer.wanted.back().end) <=
                                                     std::pair(range.file, range.begin);
    constexpr int64_t kMost = INT64_MAX / format::kBlock;
    if (range.file < 0 || range.begin < 0 || range.begin >= range.end || range.end > kMost || !follows) {
      throw_value_error(ErrorText("load", "a rank wants blocks that no file has, or in no order")
                            .help("the same version of sherd on every rank"));
    }
    offer.wanted.push_back(range);
  }
  return offer;
}

}  // namespace sherd::detail
