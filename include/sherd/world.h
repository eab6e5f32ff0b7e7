#pragma once
// The ranks that take part in a program, and how they start: threads of this process, or processes.

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/group.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sherd {

namespace detail {
class WorldState;
}

struct WorldOptions {
  /// One backend per device type, as torch names them: "cpu:gloo,cuda:nccl", or one name for all. Known: threads,
  /// shm (processes of one host), gloo, nccl, mpi, fake, and auto: shm inside a host, gloo between hosts. Empty:
  /// threads in spawn(); auto for the CPU and nccl for CUDA in init(). With mpi, for tensors of the CPU, the ranks are
  /// those that mpirun started, and they find each other through MPI.
  std::string backend = {};
  /// How long a collective or a rendezvous waits for a rank. Zero: SHERD_TIMEOUT seconds, or 300.
  std::chrono::milliseconds timeout{0};
  /// Before each collective, compare what the ranks are about to call: kind, dtype, sizes. Also SHERD_CHECK=1.
  bool check = false;
};

/// One rank's view of all ranks. A handle: copies name the same world.
class World {
 public:
  explicit World(std::shared_ptr<detail::WorldState> state) : state_(std::move(state)) {}

  int rank() const;
  int size() const;
  /// This rank among those of its host, and their number.
  int local_rank() const;
  int local_size() const;
  std::chrono::milliseconds timeout() const;
  /// WorldOptions::check: whether calls are compared between the ranks.
  bool checks_calls() const;

  /// All ranks.
  Group group() const;
  /// Some ranks, this one among them; called by these ranks alone. The same ranks and backend give the same group.
  /// `backend` overrides the world's, e.g. "gloo".
  Group group(const std::vector<int64_t>& ranks, const std::string& backend = {}) const;

  /// Lets these ranks talk through a backend that the program has already, for one type of device. Each of them calls
  /// it, before their group has communicated; later calls for the same ranks and device change nothing.
  void use_backend(const std::vector<int64_t>& ranks, c10::DeviceType device,
                   c10::intrusive_ptr<c10d::Backend> backend) const;

  /// Tells the other ranks that this one cannot go on: their pending and later collectives with it fail with `message`.
  /// spawn() does this for an exception that leaves the rank's function, init() for one that leaves main.
  void fail(std::string_view message) const;
  /// Lets go of every backend of this world's groups and joins their threads; later collectives on this rank fail. For
  /// runtimes that end before the process does: a backend's thread must not come back to an interpreter that is gone.
  void close() const;

  bool operator==(const World& other) const { return state_ == other.state_; }
  const std::shared_ptr<detail::WorldState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::WorldState> state_;
};

/// Runs fn on n ranks, each a thread of this process with a world of its own, and returns when all have ended.
/// If ranks throw, the others are stopped at their next collective, and the exception of the rank that failed first
/// is rethrown. Rank threads share the cores: each gets cores / n (at least one) for its operators.
void spawn(int n, const std::function<void(World&)>& fn, const WorldOptions& options = {});

/// Joins the world that torchrun, `sherd run`, mpirun or srun started this process in (their variables are read in
/// this order), or makes a world of one rank where none did. Once per process: later calls return the same world.
/// Throws c10::DistBackendError naming the missing ranks when they do not arrive within the timeout.
/// Rank 0 keeps the store through which groups find each other: when it ends first, it waits for the others at exit,
/// the timeout at most.
World init(const WorldOptions& options = {});

/// Joins ranks that have met already, in a program that set c10d up by itself (torch.distributed, say): this is rank
/// `rank` of `size`, and they share `store`. It takes the place of init(): once per process, later calls return the
/// same world. Throws c10::ValueError where the process has another rank or size in a world that it joined before.
World init_with_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const WorldOptions& options = {});

/// A world of one rank, of `size` pretended ones: nothing is sent, and what would be received is this rank's own data
/// or undefined. For planning, and for measuring what sherd itself costs, without the other ranks.
World fake_world(int rank, int size);

/// The world of this thread: spawn()'s, or the process's from init(); made by init() where there is none.
World current_world();

/// The same, or nothing where there is none yet.
std::optional<World> find_world();

/// Makes `world` this thread's current world for a scope.
class WorldScope {
 public:
  explicit WorldScope(const World& world);
  ~WorldScope();
  WorldScope(const WorldScope&) = delete;
  WorldScope& operator=(const WorldScope&) = delete;

 private:
  std::shared_ptr<detail::WorldState> outer_;
};

}  // namespace sherd
