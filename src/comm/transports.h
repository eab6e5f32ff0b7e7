#pragma once
// The transports between processes, each made by one function. Whether NCCL is there is decided by which file is
// compiled (nccl.cpp or no_nccl.cpp).

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sherd::detail {

/// What a rank needs to find the others of its group.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;  // seen by this group alone
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};
  std::vector<int64_t> ranks = {};  // the world's numbers of the members, for messages
  bool whole_errors = false;        // no Link will say more about what went wrong
};

c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting);

/// Whether all members are on one host, as host.h understands it. Called by all of them.
bool share_a_host(const Meeting& meeting);
/// Shared memory, for members on one host; Gloo, with a warning, where there is too little memory to share.
c10::intrusive_ptr<c10d::Backend> make_shm(const Meeting& meeting);

bool nccl_is_available();
c10::intrusive_ptr<c10d::Backend> make_nccl(const Meeting& meeting);

}  // namespace sherd::detail
