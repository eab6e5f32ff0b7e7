#pragma once
// The transports between processes, each made by one function. Whether NCCL and MPI are there is decided by which file
// is compiled (nccl.cpp or no_nccl.cpp, mpi.cpp or no_mpi.cpp).

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/host.h"

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
  std::string name = {};            // that no other group of the world has
};

c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting);

/// On which hosts the members are. Called by all of them.
Hosts hosts_of(const Meeting& meeting);
/// Shared memory, for members on one host; Gloo, with a warning, where there is too little memory to share.
c10::intrusive_ptr<c10d::Backend> make_shm(const Meeting& meeting);
/// Shared memory inside hosts and Gloo between them; Gloo alone where some host has too little memory to share.
c10::intrusive_ptr<c10d::Backend> make_hierarchical(const Meeting& meeting, const Hosts& hosts);

bool nccl_is_available();
c10::intrusive_ptr<c10d::Backend> make_nccl(const Meeting& meeting);

bool mpi_is_available();
/// Calls that move or reduce more than `most_at_once` bytes or elements are several calls of MPI, which counts in 31
/// bits.
c10::intrusive_ptr<c10d::Backend> make_mpi(const Meeting& meeting, int64_t most_at_once = int64_t{1} << 30);

/// This process among those that MPI started, and among those of its host.
struct MpiWorld {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
};
MpiWorld mpi_world();
/// The text that rank 0 of MPI's world gives, on every rank. All call it.
std::string broadcast_by_mpi(const std::string& text, std::chrono::milliseconds timeout);

}  // namespace sherd::detail
