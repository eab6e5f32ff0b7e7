#include "checkpoint/shared_blocks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>

#include "comm/host.h"
#include "comm/shm_wait.h"
#include "format/manifest.h"
#include "storage/in_threads.h"

namespace sherd::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Blocks that are brought at a time: a few, which are still in the cache when the others take them, and for many ranks
// more, so that each has something to bring.
constexpr int64_t kFewBlocks = 8;
constexpr int64_t kManyBlocks = 16;
constexpr int64_t kSlots = 2 * kManyBlocks;  // while one half is used, the other is filled
constexpr int64_t kRoundsAhead = 4;          // that the storage is told of
constexpr size_t kMostRanks = 256;           // of a ring
constexpr size_t kMostRings = 4;             // of a rank's memory
constexpr size_t kMostRanges = 4096;         // that are told
constexpr int64_t kLeastBlocks = 16;         // below that nothing is won
constexpr uint32_t kGone = 0x7fffffff;       // more than any round
constexpr auto kToAppear = std::chrono::seconds(2);
constexpr auto kToGoOn = std::chrono::seconds(10);

// How far a rank is. The numbers only grow.
struct Progress {
  ShmSignal here;
  ShmSignal filled;  // rounds of which its blocks are there
  ShmSignal used;    // rounds that it needs no more
};

// At the front of the memory, zeros at first.
struct Head {
  std::atomic<uint64_t> token;
  std::atomic<uint32_t> broken;
  Progress ranks[kMostRanks];
  std::atomic<uint32_t> rounds[kSlots];  // whose block is in the slot, counted from 1
};

constexpr size_t kHead = (sizeof(Head) + 4095) / 4096 * 4096;
constexpr size_t kArea = kHead + static_cast<size_t>(kSlots * format::kBlock);

// Ranges that the same ranks want, two at least, by these ranks.
std::map<std::vector<size_t>, std::vector<BlockRange>> wanted_by_several(
    const std::map<size_t, std::span<const BlockRange>>& wanted) {
  struct Edge {
    int32_t file;
    int64_t block;
    size_t rank;
    bool begins;
  };
  std::vector<Edge> edges;
  for (const auto& [rank, ranges] : wanted) {
    for (const BlockRange& range : ranges) {
      edges.push_back({range.file, range.begin, rank, true});
      edges.push_back({range.file, range.end, rank, false});
    }
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::pair(a.file, a.block) < std::pair(b.file, b.block); });
  std::map<std::vector<size_t>, std::vector<BlockRange>> found;
  std::vector<size_t> ranks;  // that want what comes after the last edge, ascending
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& edge = edges[i];
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), edge.rank);
    if (edge.begins) {
      ranks.insert(at, edge.rank);
    } else {
      ranks.erase(at);
    }
    const bool stretch = i + 1 < edges.size() && edges[i + 1].block > edge.block && edges[i + 1].file == edge.file;
    if (stretch && ranks.size() >= 2) found[ranks].push_back({edge.file, edge.block, edges[i + 1].block});
  }
  return found;
}

}  // namespace

// The blocks that one set of ranks wants, brought round by round. In each round a rank reads every n-th block; the
// others wait for it, and nobody fills a half again before all are done with what was in it.
class SharedBlocks::Ring {
 public:
  Ring(std::byte* memory, size_t place, size_t ranks, int threads, const Source& source)
      : head_(*reinterpret_cast<Head*>(memory)),
        slots_(memory + kHead),
        place_(place),
        ranks_(ranks),
        at_once_(static_cast<int64_t>(ranks) <= kFewBlocks ? kFewBlocks : kManyBlocks),
        threads_(threads),
        source_(source) {
    own().here.raise(1);
  }

  int64_t add(const BlockRange& range) {
    ranges_.push_back({blocks_, range});
    blocks_ += range.end - range.begin;
    return blocks_ - (range.end - range.begin);
  }

  /// How many blocks come together with this one, itself and those after it.
  int64_t left_of_round(int64_t block) const { return at_once_ - block % at_once_; }

  void enter(int64_t block) {
    while (!is_broken() && round_ < block / at_once_) {
      try {
        enter_next();
      } catch (const std::exception&) {
        break_off();
      }
    }
  }

  const std::byte* find(int64_t block) const {
    if (is_broken() || block / at_once_ != round_) return nullptr;
    const auto slot = static_cast<size_t>(block % (2 * at_once_));
    if (head_.rounds[slot].load(std::memory_order_acquire) != static_cast<uint32_t>(round_ + 1)) return nullptr;
    return slots_ + slot * static_cast<size_t>(format::kBlock);
  }

  void leave() noexcept {
    own().here.raise(kGone);
    own().filled.raise(kGone);
    own().used.raise(kGone);
  }

 private:
  Progress& own() const { return head_.ranks[place_]; }
  bool is_broken() const { return head_.broken.load(std::memory_order_relaxed) != 0; }
  // What is there stays: others may be copying it.
  void break_off() {
    head_.broken = 1;
    leave();
  }

  void enter_next() {
    const int64_t next = round_ + 1;
    own().used.raise(static_cast<uint32_t>(next));
    if (next == 0) wait_for_all(&Progress::here, 1, kToAppear);
    if (next >= 2) wait_for_all(&Progress::used, static_cast<uint32_t>(next - 1), kToGoOn);
    fill(next);
    own().filled.raise(static_cast<uint32_t>(next + 1));
    wait_for_all(&Progress::filled, static_cast<uint32_t>(next + 1), kToGoOn);
    round_ = next;
  }

  void wait_for_all(ShmSignal Progress::*signal, uint32_t least, Clock::duration limit) {
    const auto until = Clock::now() + limit;
    for (size_t i = 0; i < ranks_; ++i) {
      wait_for(head_.ranks[i].*signal, least, Patience::of(static_cast<int>(ranks_)), [&] {
        if (is_broken() || Clock::now() > until) throw std::runtime_error("a rank does not come");
      });
    }
  }

  // The blocks of a round that this rank brings.
  std::vector<int64_t> own_blocks(int64_t round) const {
    std::vector<int64_t> blocks;
    for (int64_t block = round * at_once_; block < std::min((round + 1) * at_once_, blocks_); ++block) {
      if (static_cast<size_t>(block) % ranks_ == place_) blocks.push_back(block);
    }
    return blocks;
  }

  void fill(int64_t round) {
    // A rank reads every n-th block, which no kernel foresees.
    for (; expected_ <= round + kRoundsAhead && expected_ * at_once_ < blocks_; ++expected_) {
      for (const int64_t block : own_blocks(expected_)) {
        const BlockRange place = place_of(block);
        source_.expect(place.file, place.begin);
      }
    }
    const std::vector<int64_t> blocks = own_blocks(round);
    std::atomic<size_t> next = 0;
    in_threads(std::min(static_cast<size_t>(threads_), blocks.size()), [&] {
      for (size_t i = next++; i < blocks.size(); i = next++) fill_slot(blocks[i], round);
    });
  }

  // Where a block of the ring lies in its file.
  BlockRange place_of(int64_t block) const {
    const auto range = std::prev(std::upper_bound(ranges_.begin(), ranges_.end(), block,
                                                  [](int64_t b, const Numbered& r) { return b < r.first; }));
    const int64_t begin = range->range.begin + block - range->first;
    return {range->range.file, begin, begin + 1};
  }

  void fill_slot(int64_t block, int64_t round) {
    const BlockRange place = place_of(block);
    const auto slot = static_cast<size_t>(block % (2 * at_once_));
    try {
      source_.read(place.file, place.begin,
                   {slots_ + slot * static_cast<size_t>(format::kBlock), static_cast<size_t>(format::kBlock)});
      head_.rounds[slot].store(static_cast<uint32_t>(round + 1), std::memory_order_release);
    } catch (
        const std::exception&) {  // NOLINT(bugprone-empty-catch): whoever wants it reads it, and says what is wrong
    }
  }

  struct Numbered {
    int64_t first;
    BlockRange range;
  };
  Head& head_;
  std::byte* slots_;
  size_t place_;
  size_t ranks_;
  int64_t at_once_;
  int threads_;
  const Source& source_;
  std::vector<Numbered> ranges_;
  int64_t blocks_ = 0;
  int64_t round_ = -1;
  int64_t expected_ = 0;  // the first round whose blocks the storage does not expect
};

SharedBlocks::SharedBlocks() = default;
SharedBlocks::~SharedBlocks() { leave(); }

std::string SharedBlocks::offer(std::span<const BlockRange> wanted) {
  int64_t blocks = 0;
  for (const BlockRange& range : wanted) blocks += range.end - range.begin;
  if (blocks < kLeastBlocks || wanted.size() > kMostRanges) return {};
  uint64_t token = 0;
  try {
    memory_ = ShmSegment::create_private(kMostRings * kArea);
    std::random_device device;
    token = (uint64_t{device()} << 32 | device()) | 1;
    reinterpret_cast<Head*>(memory_.data())->token = token;
  } catch (const std::exception&) {
    return {};  // this rank reads for itself
  }
  return encode({host_key(), ::getpid(), memory_.descriptor(), token, {wanted.begin(), wanted.end()}});
}

std::vector<int32_t> SharedBlocks::join(const std::vector<std::string>& texts, size_t rank, int threads,
                                        Source source) {
  if (texts[rank].empty()) return {};
  source_ = std::move(source);
  const std::string host = host_key();
  std::vector<BlockOffer> offers;
  for (const std::string& text : texts) offers.push_back(decode_offer(text));
  std::map<size_t, std::span<const BlockRange>> here;
  for (size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].host == host) here[i] = offers[i].wanted;
  }
  std::map<size_t, size_t> areas;  // used so far, by the rank whose memory it is
  std::map<size_t, std::byte*> memories;
  for (const auto& [ranks, ranges] : wanted_by_several(here)) {
    int64_t blocks = 0;
    for (const BlockRange& range : ranges) blocks += range.end - range.begin;
    if (blocks < kLeastBlocks || ranks.size() > kMostRanks || areas[ranks.front()] == kMostRings) continue;
    const size_t area = areas[ranks.front()]++;
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) continue;
    const auto [found, is_new] = memories.try_emplace(ranks.front(), nullptr);
    if (is_new) found->second = memory_of(offers[ranks.front()], ranks.front() == rank);
    std::byte* const memory = found->second;
    if (memory == nullptr) continue;
    Ring& ring = *rings_.emplace_back(std::make_unique<Ring>(
        memory + area * kArea, static_cast<size_t>(place - ranks.begin()), ranks.size(), threads, source_));
    for (const BlockRange& range : ranges) stretches_.push_back({range, &ring, ring.add(range)});
  }
  std::sort(stretches_.begin(), stretches_.end(), [](const Stretch& a, const Stretch& b) {
    return std::pair(a.range.file, a.range.begin) < std::pair(b.range.file, b.range.begin);
  });
  std::vector<int32_t> files;
  for (const Stretch& stretch : stretches_) {
    if (files.empty() || files.back() != stretch.range.file) files.push_back(stretch.range.file);
  }
  return files;
}

// Null where it cannot be had, or is not what was offered: a descriptor's number may be another file's by now.
std::byte* SharedBlocks::memory_of(const BlockOffer& offer, bool own) {
  if (own) return memory_.data();
  try {
    ShmSegment segment = ShmSegment::open(offer.pid, offer.descriptor);
    if (segment.size() != memory_.size()) return nullptr;
    if (reinterpret_cast<Head*>(segment.data())->token != offer.token) return nullptr;
    return opened_.emplace_back(std::move(segment)).data();
  } catch (const std::exception&) {
    return nullptr;
  }
}

void SharedBlocks::leave() noexcept {
  for (const auto& ring : rings_) ring->leave();
}

const SharedBlocks::Stretch* SharedBlocks::find_stretch(int32_t file, int64_t block) const {
  const auto after = std::upper_bound(
      stretches_.begin(), stretches_.end(), std::pair(file, block),
      [](const auto& at, const Stretch& stretch) { return at < std::pair(stretch.range.file, stretch.range.begin); });
  if (after == stretches_.begin()) return nullptr;
  const Stretch& stretch = *std::prev(after);
  return stretch.range.file == file && block < stretch.range.end ? &stretch : nullptr;
}

int64_t SharedBlocks::bring(int32_t file, int64_t block) {
  if (const Stretch* stretch = find_stretch(file, block)) {
    const int64_t number = stretch->first + block - stretch->range.begin;
    stretch->ring->enter(number);
    return std::min(stretch->range.end, block + stretch->ring->left_of_round(number));
  }
  const auto next = std::find_if(stretches_.begin(), stretches_.end(), [&](const Stretch& stretch) {
    return stretch.range.file == file && stretch.range.begin > block;
  });
  return next == stretches_.end() ? std::numeric_limits<int64_t>::max() : next->range.begin;
}

const std::byte* SharedBlocks::find(int32_t file, int64_t block) const {
  const Stretch* stretch = find_stretch(file, block);
  return stretch == nullptr ? nullptr : stretch->ring->find(stretch->first + block - stretch->range.begin);
}

}  // namespace sherd::detail
