#pragma once

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backend_config.h"
#include "comm/background.h"
#include "comm/group_state.h"
#include "comm/link.h"

namespace sherd::detail {

class DeviceMeshState;
class Rpc;

inline constexpr const char* kLeftByFailure = "this rank left the group when it failed";

/// What a World points at: the link to the other ranks, and the groups and meshes made so far. Groups and meshes are
/// made once for each structure, so that equal ones are one object.
class WorldState {
 public:
  WorldState(Link link, BackendConfig backends);
  ~WorldState();
  WorldState(const WorldState&) = delete;
  WorldState& operator=(const WorldState&) = delete;

  const Link& link() const { return *link_; }
  const std::shared_ptr<const Link>& shared_link() const { return link_; }
  std::shared_ptr<GroupState> group(std::vector<int64_t> ranks, const std::string& backend);
  /// The thread for communication beside this rank's own.
  Background& background() { return background_; }
  /// The one for checkpoints. A world that ends in good order waits for what is under way there.
  Background& saves() { return saves_; }
  /// Returns when nothing is under way in these two, whose threads have ended then: others may wait for what this rank
  /// has not used. Throws the first error of a move that nobody waited for.
  void finish();
  /// Posts the failure and lets go of every backend.
  void fail(const std::string& message);
  /// Closes every group, and RPC.
  void close(const char* reason, bool in_good_order = false);
  /// Tells the other members of every group that this rank makes no more calls; what it sent can still be received. RPC
  /// ends.
  void end();

  /// Null before init_rpc and after its end.
  std::shared_ptr<Rpc> rpc() const;
  void set_rpc(std::shared_ptr<Rpc> rpc);
  /// Where the agents of the next RPC meet: the same key on every rank, another each time.
  std::string next_rpc_key() { return "sherd/rpc/" + std::to_string(rpcs_made_++); }
  /// Ends RPC at once, whoever still has handles.
  void end_rpc();

  std::mutex mutex;                                                    // guards what follows
  std::map<std::string, std::weak_ptr<const DeviceMeshState>> meshes;  // weak: a mesh keeps its world alive
  at::Generator generator;                                             // the default one, once something was drawn

 private:
  /// The same for what goes in the background: a rank that is in one of its calls ends with an error.
  void fail_in_background(const std::string& message);

  std::shared_ptr<const Link> link_;
  BackendConfig backends_;
  std::mutex groups_mutex_;
  std::map<std::pair<std::vector<int64_t>, std::string>, std::shared_ptr<GroupState>> groups_;
  mutable std::mutex rpc_mutex_;
  std::shared_ptr<Rpc> rpc_;
  int rpcs_made_ = 0;
  Background background_;  // these last: they end before the groups do
  Background saves_;
};

/// Sets or reads this thread's world; null where there is none.
std::shared_ptr<WorldState> exchange_thread_world(std::shared_ptr<WorldState> world);
std::shared_ptr<WorldState> thread_world();

}  // namespace sherd::detail
