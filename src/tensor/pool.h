#pragma once
// Memory for small objects of one size that are made and dropped all the time: a thread keeps what it dropped and uses
// it again. Every new DTensor is two of them.

#include <cstddef>

namespace sherd::detail {

/// The blocks that a thread keeps. At most kMostKept of them; the rest goes back to the heap.
struct FreeBlocks {
  struct Block {
    Block* next;
  };
  Block* first = nullptr;
  size_t count = 0;

  static constexpr size_t kMostKept = 1024;

  void* take(size_t size) {
    if (first == nullptr) return ::operator new(size);
    Block* block = first;
    first = block->next;
    --count;
    return block;
  }
  void give(void* memory) {
    if (count == kMostKept) {
      ::operator delete(memory);
      return;
    }
    first = new (memory) Block{first};
    ++count;
  }
  FreeBlocks() = default;
  FreeBlocks(const FreeBlocks&) = delete;
  FreeBlocks& operator=(const FreeBlocks&) = delete;
  ~FreeBlocks() {
    while (first != nullptr) ::operator delete(take(0));
  }
};

/// `Tag` has its objects allocated from the pool by deriving operator new and delete from it.
template <class Tag>
class Pooled {
 public:
  static void* operator new(size_t size) {
    FreeBlocks* blocks = size == sizeof(Tag) && kKeeps ? blocks_of_thread() : nullptr;
    return blocks != nullptr ? blocks->take(size) : ::operator new(size);
  }
  static void operator delete(void* memory, size_t size) {
    FreeBlocks* blocks = size == sizeof(Tag) && kKeeps ? blocks_of_thread() : nullptr;
    if (blocks != nullptr) {
      blocks->give(memory);
    } else {
      ::operator delete(memory);
    }
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr bool kKeeps = false;  // so that a use after the end is found
#else
  static constexpr bool kKeeps = true;
#endif

  // Null when the thread is ending and its blocks are gone.
  struct Owner {
    FreeBlocks blocks;
    Owner() { pointer = &blocks; }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    ~Owner() {
      pointer = nullptr;
      ended = true;
    }
  };
  static FreeBlocks* blocks_of_thread() {
    if (pointer != nullptr) return pointer;
    if (ended) return nullptr;
    thread_local Owner owner;
    return &owner.blocks;
  }

  // Found without a call into the loader.
  [[gnu::tls_model("initial-exec")]] inline static thread_local FreeBlocks* pointer = nullptr;
  [[gnu::tls_model("initial-exec")]] inline static thread_local bool ended = false;
};

}  // namespace sherd::detail
