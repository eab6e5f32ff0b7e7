#pragma once
// Blocks of a checkpoint's files that several ranks of one host want: each is read by one of them, into memory that
// they share, and taken from there by the others. Where that does not work, for whatever reason, a rank reads for
// itself: a rank that ends or hangs costs the others a few seconds, once.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/block_offer.h"
#include "comm/shm_segment.h"
#include "stored/blocks_at_hand.h"

namespace sherd::detail {

class SharedBlocks final : public stored::BlocksAtHand {
 public:
  struct Source {
    /// Reads a block and compares it with its digest, in any thread.
    std::function<void(int32_t file, int64_t block, std::span<std::byte> into)> read;
    /// That block is going to be read soon.
    std::function<void(int32_t file, int64_t block)> expect;
  };

  SharedBlocks();
  ~SharedBlocks() override;
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;

  /// What all ranks are told: where this one is, what it wants (ascending, without overlaps), and where its memory is.
  std::string offer(std::span<const BlockRange> wanted);
  /// From what all ranks told, this one being `rank`. The files of which blocks are shared.
  std::vector<int32_t> join(const std::vector<std::string>& offers, size_t rank, int threads, Source source);
  /// The others need not wait for this rank any more. Never throws.
  void leave() noexcept;

  int64_t bring(int32_t file, int64_t block) override;
  const std::byte* find(int32_t file, int64_t block) const override;

 private:
  class Ring;
  std::byte* memory_of(const BlockOffer& offer, bool own);

  // Blocks of a file that are wanted by the same ranks.
  struct Stretch {
    BlockRange range;
    Ring* ring;
    int64_t first;  // the number of its first block among those of the ring
  };
  const Stretch* find_stretch(int32_t file, int64_t block) const;

  Source source_;
  ShmSegment memory_;
  std::vector<ShmSegment> opened_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::vector<Stretch> stretches_;  // ascending
};

}  // namespace sherd::detail
