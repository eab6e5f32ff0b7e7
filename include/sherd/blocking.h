#pragma once
// For languages that hold a lock around their interpreter: a rank thread that waits for others must let go of it.

namespace sherd {

struct BlockingHooks {
  /// Called in the waiting thread before a collective and before a wait for one; what it returns goes to `end`.
  void* (*begin)() = nullptr;
  void (*end)(void* state) = nullptr;
};

/// For the whole process, before any rank communicates.
void set_blocking_hooks(BlockingHooks hooks);

namespace detail {

/// While it lives, this thread may wait for other ranks.
class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace detail
}  // namespace sherd
