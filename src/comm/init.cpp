// Rendezvous: how a process finds the others of its world.

#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"
#include "comm/settings.h"
#include "comm/transports.h"
#include "comm/world_state.h"
#include "launch/rank_variables.h"
#include "sherd/world.h"

namespace sherd {
namespace {

using detail::Link;

std::mutex process_mutex;
std::shared_ptr<detail::WorldState> process_world;
std::terminate_handler earlier_terminate = nullptr;
pid_t joined_by = 0;

// An exception that leaves main ends the process through std::terminate: tell the others first.
[[noreturn]] void tell_and_terminate() {
  if (const auto world = process_world; world && ::getpid() == joined_by && std::current_exception()) {
    world->link().post_failure(detail::message_of_current_exception());
    if (world->link().keeps_store) {
      // The others notice when the connections close. Closing may wait for a call under way: not in this thread.
      std::thread([world] { world->close(detail::kLeftByFailure); }).detach();
      world->link().wait_until_done();
    }
  }
  if (earlier_terminate != nullptr) earlier_terminate();
  std::abort();
}

// The process ends in good order. The others may still need the store that rank 0 keeps.
void leave() {
  if (::getpid() != joined_by) return;  // a process that was forked is not the rank
  const Link& link = process_world->link();
  try {
    process_world->finish();
  } catch (...) {
    std::terminate();  // as with an exception that leaves main
  }
  link.post_end();
  process_world->end();
  if (link.keeps_store) link.wait_until_done();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// torchrun keeps the store in its agent and says so; a second server on that port would fail.
bool agent_keeps_store() {
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");  // NOLINT(concurrency-mt-unsafe)
  return agent != nullptr && std::string(agent) == "True";
}

c10::intrusive_ptr<c10d::Store> connect(const RankVariables& variables, std::chrono::milliseconds timeout) {
  const std::string where = fmt::format("{}:{}", variables.master_addr, variables.master_port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(variables.master_port);
  options.isServer = variables.rank == 0 && !agent_keeps_store();
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(variables.master_addr, options);
  } catch (const std::exception& error) {
    const std::string cause = detail::message_of(error);
    if (options.isServer) {
      detail::throw_comm_error(
          ErrorText("init", "rank 0 cannot listen at its port")
              .fact("address", where)
              .fact("cause", first_line(cause))
              .help(fmt::format("MASTER_PORT={}, or another free port", variables.master_port + 1)));
    }
    detail::throw_comm_error(ErrorText("init", "rank 0 never came")
                                 .fact("address", where)
                                 .fact("waited", detail::seconds_text(timeout))
                                 .fact("cause", first_line(cause))
                                 .help("start rank 0, and check MASTER_ADDR and MASTER_PORT"));
  }
}

// Returns when every rank has come; names those that have not.
void wait_for_all(const Link& link, const std::string& where) {
  const auto key = [](int rank) { return fmt::format("sherd/arrived/{}", rank); };
  std::vector<std::string> keys;
  for (int rank = 0; rank < link.size; ++rank) keys.push_back(key(rank));
  link.store->set(key(link.rank), std::vector<uint8_t>{1});
  try {
    link.store->wait(keys, link.timeout);
    return;
  } catch (const std::exception&) {  // said below, with names
  }
  const auto refuse = [&](const std::string& problem) {
    detail::throw_comm_error(
        ErrorText("init", problem)
            .fact("world", fmt::format("{}, this is rank {}", detail::rank_count(link.size), link.rank))
            .fact("address", where)
            .fact("waited", detail::seconds_text(link.timeout))
            .help("start the missing ranks; SHERD_TIMEOUT=600 waits longer"));
  };
  std::vector<int64_t> missing;
  try {
    for (int rank = 0; rank < link.size; ++rank) {
      if (!link.store->check({key(rank)})) missing.push_back(rank);
    }
    if (missing.empty()) return;  // at the last moment
    link.trouble->add(missing);
    link.post_done();
  } catch (const std::exception&) {
    refuse("rank 0, which keeps the store of the world, is gone");
  }
  if (link.keeps_store) link.wait_until_done();
  refuse(detail::missing_problem(missing));
}

Link link_with(const WorldOptions& options) {
  Link link;
  link.timeout = detail::timeout_of(options);
  link.check = options.check || detail::settings().check;
  return link;
}

detail::BackendConfig backends_of(const WorldOptions& options) {
  const std::string usual = detail::nccl_is_available() ? "cpu:auto,cuda:nccl" : "auto";
  return detail::BackendConfig::parse(options.backend.empty() ? usual : options.backend);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "localhost";
}

// Rank 0 opens the store at a port that is free and tells the others through MPI where it is.
c10::intrusive_ptr<c10d::Store> meet_by_mpi(const Link& link) {
  c10::intrusive_ptr<c10d::TCPStore> own;
  std::string where;
  std::string cause;
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  options.timeout = link.timeout;
  const std::string host = link.local_size == link.size ? "127.0.0.1" : host_name();
  if (link.rank == 0) {
    options.port = 0;
    options.isServer = true;
    try {
      own = c10::make_intrusive<c10d::TCPStore>(host, options);
      where = fmt::format("{}:{}", host, own->getPort());
    } catch (const std::exception& error) {  // told to the others first: they wait
      cause = first_line(detail::message_of(error));
    }
  }
  where = detail::broadcast_by_mpi(where, link.timeout);
  if (where.empty()) {
    detail::throw_comm_error(ErrorText("init", "rank 0 cannot listen at any port")
                                 .fact("host", host)
                                 .fact("cause", cause.empty() ? "see rank 0" : cause)
                                 .help("look at the network of the host of rank 0"));
  }
  if (own) return own;
  RankVariables variables{.rank = link.rank, .world_size = link.size, .master_addr = {}, .source = "mpi"};
  const size_t colon = where.rfind(':');
  variables.master_addr = where.substr(0, colon);
  std::from_chars(where.data() + colon + 1, where.data() + where.size(), variables.master_port);
  return connect(variables, link.timeout);
}

// The world of the processes that MPI started; no variable is needed. Another launcher's world is not the same.
Link join_by_mpi(Link link) {
  const detail::MpiWorld here = detail::mpi_world();
  if (!lacks_address_under_mpi()) {
    const auto variables = detail::as_c10_errors([] { return read_rank_variables(); });
    if (variables && (variables->rank != here.rank || variables->world_size != here.size)) {
      detail::throw_value_error(
          ErrorText("init", "MPI did not start the ranks of this world")
              .fact(variables->source, fmt::format("rank {} of {}", variables->rank, variables->world_size))
              .fact("MPI", fmt::format("rank {} of {}", here.rank, here.size))
              .help("mpirun -n 4 ./program, or another backend: WorldOptions{.backend = \"gloo\"}"));
    }
  }
  link.rank = here.rank;
  link.size = here.size;
  link.local_rank = here.local_rank;
  link.local_size = here.local_size;
  if (link.size == 1) {
    link.store = c10::make_intrusive<c10d::HashStore>();
    return link;
  }
  link.store = meet_by_mpi(link);
  link.keeps_store = link.rank == 0;
  wait_for_all(link, "told by rank 0 through MPI");
  return link;
}

std::shared_ptr<detail::WorldState> join(const WorldOptions& options) {
  Link link = link_with(options);
  const detail::BackendConfig backends = backends_of(options);
  if (backends.has("mpi") || (detail::mpi_is_available() && lacks_address_under_mpi())) {
    return std::make_shared<detail::WorldState>(join_by_mpi(std::move(link)), backends);
  }
  const auto variables = detail::as_c10_errors([] { return read_rank_variables(); });
  if (variables && variables->world_size > 1) {
    link.rank = variables->rank;
    link.size = variables->world_size;
    link.local_rank = variables->local_rank;
    link.local_size = variables->local_world_size;
    link.store = connect(*variables, link.timeout);
    link.keeps_store = link.rank == 0 && !agent_keeps_store();
    wait_for_all(link, fmt::format("{}:{}", variables->master_addr, variables->master_port));
  } else {
    link.store = c10::make_intrusive<c10d::HashStore>();
  }
  return std::make_shared<detail::WorldState>(std::move(link), backends);
}

// Makes this the process's world and sees to it that the others learn how it ends.
World adopt(std::shared_ptr<detail::WorldState> world) {
  process_world = std::move(world);
  joined_by = ::getpid();
  earlier_terminate = std::set_terminate(tell_and_terminate);
  std::atexit(leave);
  return World(process_world);
}

}  // namespace

World init(const WorldOptions& options) {
  const std::lock_guard lock(process_mutex);
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  return process_world ? World(process_world) : adopt(join(options));
}

World init_with_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const WorldOptions& options) {
  const std::lock_guard lock(process_mutex);
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  if (process_world) {
    const Link& joined = process_world->link();
    if (joined.rank == rank && joined.size == size) return World(process_world);
    detail::throw_value_error(ErrorText("init_with_store", "this process has joined another world already")
                                  .fact("joined", fmt::format("rank {} of {}", joined.rank, joined.size))
                                  .fact("asked", fmt::format("rank {} of {}", rank, size))
                                  .help("set c10d (torch.distributed) up before the first call of sherd"));
  }
  Link link = link_with(options);
  link.rank = link.local_rank = rank;
  link.size = link.local_size = size;
  // Who shares this host: only the launcher's variables say it.
  const auto variables = detail::as_c10_errors([] { return read_rank_variables(); });
  if (variables && variables->rank == rank && variables->world_size == size) {
    link.local_rank = variables->local_rank;
    link.local_size = variables->local_world_size;
  }
  link.store = c10::make_intrusive<c10d::PrefixStore>("sherd", std::move(store));
  return adopt(std::make_shared<detail::WorldState>(std::move(link), backends_of(options)));
}

std::optional<World> find_world() {
  if (auto world = detail::thread_world()) return World(std::move(world));
  const std::lock_guard lock(process_mutex);
  return process_world ? std::optional(World(process_world)) : std::nullopt;
}

}  // namespace sherd
