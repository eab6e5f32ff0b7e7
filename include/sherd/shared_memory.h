#pragma once
// The transport shm for programs that set c10d up by themselves (torch.distributed, say).

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sherd {

struct SharedMemoryOptions {
  c10::intrusive_ptr<c10d::Store> store;  // seen by this group alone
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};  // zero: SHERD_TIMEOUT seconds, or 300
  std::vector<int64_t> ranks = {};       // the world's numbers of the members, for messages; empty: 0 to size - 1
};

/// A backend for CPU tensors of processes of one host; called by every member. Calls complete before they return, and a
/// send never waits for its receiver. Gloo, with a warning, where there is too little memory to share; the choice is
/// the same on all members. Throws c10::DistBackendError where they are on several hosts.
c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(const SharedMemoryOptions& options);

}  // namespace sherd
