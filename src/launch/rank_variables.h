#pragma once
// Which rank this process is, as its launcher says in the environment.

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sherd {

struct RankVariables {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_addr;  // empty only where one rank is alone and nobody named an address
  int master_port = 0;      // 0 likewise
  std::string source;       // "torchrun", "open mpi" or "slurm"
  bool operator==(const RankVariables&) const = default;
};

/// As std::getenv: the value of a variable, or null.
using ReadVariable = std::function<const char*(const char*)>;

/// Reads the variables of the first launcher found:
///   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (`sherd run` sets the same).
///              Without the LOCAL_ pair, ranks share a host if MASTER_ADDR is this host's loopback; otherwise each
///              is alone on its host.
///   open mpi   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE. On one host the address is 127.0.0.1.
///   slurm      SLURM_PROCID and SLURM_NTASKS of a step started by srun. The address is the step's first host, the
///              port 20000 + job id % 12000. A batch script itself is no step, so it is none of this.
/// MASTER_ADDR and MASTER_PORT win over what a launcher implies.
/// Returns nothing where there is no launcher. Throws std::invalid_argument naming the variable, its value and what
/// to set, where variables are half set, malformed, or contradict each other.
std::optional<RankVariables> read_rank_variables(const ReadVariable& read = [](const char* name) {
  return static_cast<const char*>(std::getenv(name));
});

/// Whether Open MPI started the ranks on several hosts and nobody named the host of rank 0: where read_rank_variables
/// throws, but ranks that have MPI can ask it.
bool lacks_address_under_mpi(const ReadVariable& read = [](const char* name) {
  return static_cast<const char*>(std::getenv(name));
});

/// The first host of a Slurm host list: "node[03-05,7],login1" gives "node03".
/// Throws std::invalid_argument for a list with an open bracket or no host.
std::string first_slurm_host(std::string_view list);

}  // namespace sherd
