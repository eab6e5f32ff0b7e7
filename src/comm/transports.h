#pragma once
// The transports that torch brings, each made by one function. Whether NCCL is there is decided by which file is
// compiled (nccl.cpp or no_nccl.cpp).

#include <c10/util/intrusive_ptr.h>

#include <chrono>

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
};

c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting);

bool nccl_is_available();
c10::intrusive_ptr<c10d::Backend> make_nccl(const Meeting& meeting);

}  // namespace sherd::detail
