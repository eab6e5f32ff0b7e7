#include "launch/rank_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd {
namespace {

constexpr int kDefaultPort = 29500;  // torch's

/// The environment, with the errors that every launcher's variables share.
class Variables {
 public:
  Variables(const ReadVariable& read, std::string_view source, std::string_view help)
      : read_(read), source_(source), help_(help) {}

  /// The text of a variable. A launcher that sets a variable to nothing has not set it.
  std::optional<std::string> text(const char* name) const {
    const char* value = read_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::string required(const char* name, std::string_view beside) const {
    if (auto value = text(name)) return *value;
    throw std::invalid_argument(ErrorText("init", fmt::format("{} is not set", name))
                                    .fact("set", fmt::format("{} ({})", beside, source_))
                                    .help(help_));
  }

  /// A whole number in [low, high].
  int number(const char* name, const std::string& value, int low, int high) const {
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size())
      throw std::invalid_argument(
          ErrorText("init", fmt::format("{} is not a whole number", name)).fact(name, quoted(value)).help(help_));
    if (result < low || result > high)
      throw std::invalid_argument(ErrorText("init", fmt::format("{} is out of range", name))
                                      .fact(name, value)
                                      .fact("range", range_text(low, high))
                                      .help(help_));
    return result;
  }
  int required_number(const char* name, std::string_view beside, int low, int high = INT_MAX) const {
    return number(name, required(name, beside), low, high);
  }

  std::string_view help() const { return help_; }

 private:
  static std::string quoted(const std::string& value) { return fmt::format("\"{}\"", value); }
  static std::string range_text(int low, int high) {
    return high == INT_MAX ? fmt::format("{} and up", low) : fmt::format("{} to {}", low, high);
  }

  const ReadVariable& read_;
  std::string_view source_;
  std::string_view help_;
};

/// The names under which one launcher gives the four numbers.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

void read_global(const Variables& variables, const Names& names, RankVariables& into) {
  into.world_size = variables.required_number(names.world_size, names.rank, 1);
  into.rank = variables.required_number(names.rank, names.world_size, 0, into.world_size - 1);
}

void read_local(const Variables& variables, const Names& names, RankVariables& into) {
  into.local_world_size = variables.required_number(names.local_world_size, names.rank, 1, into.world_size);
  into.local_rank = variables.required_number(names.local_rank, names.rank, 0, into.local_world_size - 1);
}

/// MASTER_ADDR and MASTER_PORT where they are set.
void read_master(const Variables& variables, RankVariables& into) {
  if (auto address = variables.text("MASTER_ADDR")) into.master_addr = *address;
  if (auto port = variables.text("MASTER_PORT")) into.master_port = variables.number("MASTER_PORT", *port, 1, 65535);
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::optional<RankVariables> read_torchrun(const ReadVariable& read) {
  const Variables variables(read, "torchrun's variables",
                            "start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  constexpr Names kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  if (!variables.has(kNames.rank) && !variables.has(kNames.world_size)) return std::nullopt;

  RankVariables result{.master_addr = {}, .source = "torchrun"};
  read_global(variables, kNames, result);
  read_master(variables, result);
  if (result.world_size > 1) {
    variables.required("MASTER_ADDR", "RANK and WORLD_SIZE");
    variables.required("MASTER_PORT", "RANK and WORLD_SIZE");
  }
  if (variables.has(kNames.local_rank) || variables.has(kNames.local_world_size)) {
    read_local(variables, kNames, result);
  } else if (is_loopback(result.master_addr)) {
    result.local_rank = result.rank;
    result.local_world_size = result.world_size;
  }
  return result;
}

/// A port that ranks of one job agree on and other jobs rarely share. Below those that systems give to connections
/// (from 32768 on, on Linux), of which any may be taken.
int port_of_job(uint64_t id) { return 20000 + static_cast<int>(id % 12000); }

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::optional<RankVariables> read_open_mpi(const ReadVariable& read) {
  const Variables variables(read, "Open MPI's variables",
                            "mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 ./program");
  constexpr Names kNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
  if (!variables.has(kNames.rank) && !variables.has(kNames.world_size)) return std::nullopt;

  RankVariables result{.master_addr = {}, .source = "open mpi"};
  read_global(variables, kNames, result);
  read_local(variables, kNames, result);
  // Open MPI names the job in one variable up to release 4 and in another from 5 on.
  result.master_port = kDefaultPort;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (auto job = variables.text(name)) result.master_port = port_of_job(fnv1a(*job));
  read_master(variables, result);
  if (result.master_addr.empty()) {
    if (result.local_world_size != result.world_size)
      throw std::invalid_argument(ErrorText("init", "MASTER_ADDR is not set and the ranks are on several hosts")
                                      .fact(kNames.world_size, std::to_string(result.world_size))
                                      .fact(kNames.local_world_size, std::to_string(result.local_world_size))
                                      .help(variables.help()));
    result.master_addr = "127.0.0.1";
  }
  return result;
}

/// The tasks on node `node` of Slurm's "2(x3),1": two on each of the first three nodes, one on the fourth.
int slurm_tasks_on_node(const Variables& variables, const char* name, const std::string& text, int node) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t open = item.find("(x");
    const int tasks = variables.number(name, std::string(item.substr(0, open)), 1, INT_MAX);
    int nodes = 1;
    if (open != item.npos) {
      const std::string_view times = item.substr(open + 2);
      nodes = variables.number(name, std::string(times.substr(0, times.find(')'))), 1, INT_MAX);
    }
    if (node < nodes) return tasks;
    node -= nodes;
  }
  throw std::invalid_argument(ErrorText("init", fmt::format("{} has no entry for this node", name))
                                  .fact(name, text)
                                  .fact("SLURM_NODEID", variables.text("SLURM_NODEID").value_or(""))
                                  .help(variables.help()));
}

int slurm_local_size(const Variables& variables, const RankVariables& world) {
  constexpr const char* kPerNodeList = "SLURM_STEP_TASKS_PER_NODE";
  if (const auto list = variables.text(kPerNodeList); list && variables.has("SLURM_NODEID")) {
    const int node = variables.required_number("SLURM_NODEID", kPerNodeList, 0);
    return slurm_tasks_on_node(variables, kPerNodeList, *list, node);
  }
  const std::string hosts = variables.text("SLURM_STEP_NODELIST").value_or("");
  if (!hosts.empty() && hosts.find_first_of("[,") == hosts.npos) return world.world_size;
  return variables.required_number("SLURM_NTASKS_PER_NODE", "SLURM_PROCID", 1);
}

std::optional<RankVariables> read_slurm(const ReadVariable& read) {
  const Variables variables(read, "Slurm's variables", "srun --ntasks=8 --ntasks-per-node=4 ./program");
  // A batch script has SLURM_PROCID=0 and SLURM_NTASKS too, though it is one process and no step.
  if (!variables.has("SLURM_PROCID")) return std::nullopt;
  if (!variables.has("SLURM_STEP_NODELIST") && !variables.has("SLURM_STEP_ID")) return std::nullopt;

  const char* size_name = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  RankVariables result{.master_addr = {}, .source = "slurm"};
  read_global(variables, {"SLURM_PROCID", size_name, nullptr, nullptr}, result);
  result.local_world_size = std::min(slurm_local_size(variables, result), result.world_size);
  result.local_rank = variables.required_number("SLURM_LOCALID", "SLURM_PROCID", 0, result.local_world_size - 1);
  read_master(variables, result);
  if (result.master_addr.empty())
    result.master_addr = first_slurm_host(variables.required("SLURM_STEP_NODELIST", "SLURM_PROCID"));
  if (result.master_port == 0) {
    const int job = variables.required_number("SLURM_JOB_ID", "SLURM_PROCID", 0);
    result.master_port = port_of_job(static_cast<uint64_t>(job));
  }
  return result;
}

}  // namespace

std::string first_slurm_host(std::string_view list) {
  const auto fail = [&](std::string_view problem) -> std::string {
    throw std::invalid_argument(ErrorText("init", problem)
                                    .fact("SLURM_STEP_NODELIST", fmt::format("\"{}\"", list))
                                    .help("set MASTER_ADDR to the host of rank 0"));
  };
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == list.npos) return fail("the host list has an open bracket");
    host += list.substr(i + 1, list.find_first_of(",-]", i) - i - 1);
    i = close;
  }
  return host.empty() ? fail("the host list names no host") : host;
}

bool lacks_address_under_mpi(const ReadVariable& read) {
  const Variables variables(read, "Open MPI's variables", "");
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"})
    if (variables.has(name)) return false;
  const auto all = variables.text("OMPI_COMM_WORLD_SIZE");
  const auto here = variables.text("OMPI_COMM_WORLD_LOCAL_SIZE");
  return all && here && *all != *here;
}

std::optional<RankVariables> read_rank_variables(const ReadVariable& read) {
  for (const auto& launcher : {read_torchrun, read_open_mpi, read_slurm})
    if (auto result = launcher(read)) return result;
  return std::nullopt;
}

}  // namespace sherd
