#pragma once
// Tensors of other ranks, fetched when they are wanted: no rank but the one that fetches makes a call. libtorch's
// TensorPipe agent carries them, one agent for each rank that is a thread or a process. docs/remote.md shows it.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sherd/group.h"
#include "sherd/world.h"

namespace sherd {

namespace detail {
class Rpc;
class Published;
}  // namespace detail

struct RpcOptions {
  /// What this rank is called: letters, digits, '-' and '_', no other rank's name. Empty: "worker" and its number.
  std::string name = {};
  /// How long a fetch waits for the owner. Zero: as long as the world waits for a rank.
  std::chrono::milliseconds timeout{0};
  /// Threads of this rank that answer the others.
  int threads = 4;
};

/// Lets the ranks of the world fetch tensors from each other. Every rank calls it; later again after shutdown_rpc.
/// Throws the same c10::ValueError on every rank where one of them cannot start or two have the same name,
/// c10::DistBackendError naming a rank that does not come, and c10::Error where this rank has RPC already.
void init_rpc(const World& world, const RpcOptions& options = {});

/// Ends it. Every rank calls it; it returns when the fetches of all ranks are over, and leaves no thread behind. Throws
/// c10::DistBackendError naming a rank that does not come; this rank's RPC has ended then, too.
/// Where a program does not call it, RPC ends with the world, and fetches that are under way then fail.
void shutdown_rpc(const World& world);

/// True between init_rpc and shutdown_rpc.
bool has_rpc(const World& world);

/// The ranks' names, by rank. Throws c10::Error before init_rpc.
std::vector<std::string> rpc_names(const World& world);

/// A tensor that another rank has, or this one. A handle: copies name the same tensor. May be used by any thread.
class RemoteTensor {
 public:
  struct Where {
    int owner = 0;
    uint64_t id = 0;  // of what the owner shares
    uint64_t index = 0;
  };
  RemoteTensor(std::shared_ptr<detail::Rpc> rpc, Where where, std::shared_ptr<const detail::Published> kept)
      : rpc_(std::move(rpc)), where_(where), kept_(std::move(kept)) {}

  /// The rank that has it.
  int owner() const { return where_.owner; }
  /// A copy of its values at the moment the owner answers, contiguous and on the CPU, without gradient. The owner need
  /// not do anything, but must not write to the tensor meanwhile: some of the values may be the new ones. `timeout`:
  /// zero for that of RpcOptions.
  /// Throws c10::DistBackendError where the owner is gone or does not answer in time, c10::Error where it shares the
  /// tensor no more and after shutdown_rpc.
  at::Tensor to_here(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) const;

 private:
  std::shared_ptr<detail::Rpc> rpc_;
  Where where_;
  std::shared_ptr<const detail::Published> kept_;  // what this rank shared in the same call
};

/// Every member of the group shares some tensors, or none, and gets handles to those of all members, its own included,
/// by their place in the group. The tensors are not copied: a fetch sees what the owner writes later. A rank shares
/// them for as long as it keeps any handle of this call. They are dense and have data, on any device.
/// Throws the same c10::ValueError on every member where one has no RPC or a tensor that cannot be shared.
std::vector<std::vector<RemoteTensor>> share_tensors(const Group& group, const World& world,
                                                     std::vector<at::Tensor> mine);

}  // namespace sherd
