// Starting and ending RPC, and handles to the tensors of others.

#include <ATen/EmptyTensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/rank_list.h"
#include "comm/rpc.h"
#include "comm/world_state.h"
#include "sherd/box.h"
#include "sherd/collectives.h"

namespace sherd {
namespace {

using detail::throw_state_error;
using detail::throw_value_error;

constexpr size_t kLongestName = 127;  // the agent's limit
constexpr int kMostRanks = 32767;     // the agent counts them in 15 bits

void check_options(const World& world, const std::string& name, int threads) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
  if (name.empty() || name.size() > kLongestName || !std::all_of(name.begin(), name.end(), is_allowed)) {
    throw_value_error(ErrorText("init_rpc", "a rank cannot have this name")
                          .fact("name", fmt::format("\"{}\"", name))
                          .fact("allowed", fmt::format("1 to {} letters, digits, '-' and '_'", kLongestName))
                          .help(fmt::format("RpcOptions{{.name = \"trainer{}\"}}", world.rank())));
  }
  if (threads < 1) {
    throw_value_error(ErrorText("init_rpc", "at least one thread must answer the other ranks")
                          .fact("threads", std::to_string(threads))
                          .help("RpcOptions{.threads = 4}"));
  }
  if (world.size() > kMostRanks) {
    throw_value_error(ErrorText("init_rpc", "the world is too large")
                          .fact("world", detail::rank_count(world.size()))
                          .fact("limit", detail::rank_count(kMostRanks))
                          .help("start fewer ranks"));
  }
}

void check_unique(const std::vector<std::string>& names) {
  std::map<std::string, size_t> ranks;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const auto [first, is_new] = ranks.emplace(names[rank], rank);
    if (is_new) continue;
    throw_value_error(ErrorText("init_rpc", "two ranks have the same name")
                          .fact("name", names[rank])
                          .fact("ranks", fmt::format("{} and {}", first->second, rank))
                          .help(fmt::format("RpcOptions{{.name = \"{}{}\"}}, or no name", names[rank], rank)));
  }
}

// What is sent are the elements in the tensor's own memory.
void check_shareable(size_t index, const at::Tensor& tensor) {
  const auto refuse = [&](const char* problem, const char* help) {
    throw_value_error(ErrorText("share_tensors", problem).fact("tensor", std::to_string(index)).help(help));
  };
  if (!tensor.defined()) refuse("a tensor is undefined", "torch::empty(sizes)");
  if (tensor.layout() != c10::kStrided || tensor.is_quantized()) {
    refuse("a tensor is not dense", "tensor.to_dense() or tensor.dequantize()");
  }
  const auto needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                       static_cast<size_t>(tensor.storage_offset()));
  if (tensor.is_meta() || (tensor.numel() > 0 && tensor.storage().nbytes() < needed)) {
    refuse("a tensor has no data of its own", "sherd::to_local(tensor), where it is a DTensor");
  }
}

struct Offer {
  uint64_t id = 0;
  uint64_t count = 0;
};

std::string to_text(const Offer& offer) { return fmt::format("{} {}", offer.id, offer.count); }

Offer parse_offer(const std::string& text) {
  Offer offer;
  const char* end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, offer.id);
  const auto count = id.ptr == end ? id : std::from_chars(id.ptr + 1, end, offer.count);
  if (count.ec != std::errc() || count.ptr != end || id.ptr == end) {
    detail::throw_comm_error(ErrorText("share_tensors", "a rank sent something else than what it shares")
                                 .fact("sent", text)
                                 .help("run the same version of sherd on every rank"));
  }
  return offer;
}

}  // namespace

void init_rpc(const World& world, const RpcOptions& options) {
  detail::WorldState& state = *world.state();
  if (!state.link().store) {
    throw_state_error(ErrorText("init_rpc", "the other ranks of this world are pretended")
                          .fact("world", detail::rank_count(world.size()))
                          .help("sherd::spawn(4, fn) or sherd::init()"));
  }
  if (state.rpc()) {
    throw_state_error(ErrorText("init_rpc", "the world has RPC already")
                          .fact("rank", std::to_string(world.rank()))
                          .help("call it once, or sherd::shutdown_rpc(world) before"));
  }
  const std::string name = options.name.empty() ? fmt::format("worker{}", world.rank()) : options.name;
  const Group group = world.group();
  agree(group, "init_rpc", [&] { check_options(world, name, options.threads); });
  const std::vector<std::string> names = all_gather_text(group, name);
  check_unique(names);
  const auto timeout = options.timeout.count() > 0 ? options.timeout : world.timeout();
  const auto rpc = std::make_shared<detail::Rpc>(state.shared_link(), names, timeout);
  agree(group, "init_rpc", [&] {
    try {
      rpc->start(state.next_rpc_key(), options.threads);
    } catch (const detail::WireAbandoned&) {  // the rank that could not start says why
    }
  });
  state.set_rpc(rpc);
}

void shutdown_rpc(const World& world) {
  const auto rpc = detail::rpc_of(world, "shutdown_rpc");
  try {
    rpc->finish();
    barrier(world.group());  // nobody asks any more
    rpc->settle();
    barrier(world.group());  // nobody answers any more
  } catch (...) {
    world.state()->end_rpc();
    throw;
  }
  world.state()->end_rpc();
}

bool has_rpc(const World& world) { return world.state()->rpc() != nullptr; }

std::vector<std::string> rpc_names(const World& world) { return detail::rpc_of(world, "rpc_names")->names(); }

at::Tensor RemoteTensor::to_here(std::chrono::milliseconds timeout) const {
  return rpc_->fetch("to_here", where_, timeout);
}

std::vector<std::vector<RemoteTensor>> share_tensors(const Group& group, const World& world,
                                                     std::vector<at::Tensor> mine) {
  std::shared_ptr<detail::Rpc> rpc;
  agree(group, "share_tensors", [&] {
    rpc = detail::rpc_of(world, "share_tensors");
    if (group.ranks()[static_cast<size_t>(group.rank())] != world.rank()) {
      throw_value_error(ErrorText("share_tensors", "the group is of another world")
                            .fact("group", fmt::format("{}, place {}", group.name(), group.rank()))
                            .fact("world", fmt::format("rank {}", world.rank()))
                            .help("world.group({0, 1})"));
    }
    for (size_t i = 0; i < mine.size(); ++i) check_shareable(i, mine[i]);
  });
  const uint64_t count = mine.size();
  const auto kept = rpc->publish(std::move(mine));
  const std::vector<std::string> texts = all_gather_text(group, to_text({.id = kept->id(), .count = count}));
  std::vector<std::vector<RemoteTensor>> all(texts.size());
  for (size_t place = 0; place < texts.size(); ++place) {
    const Offer offer = parse_offer(texts[place]);
    const int owner = static_cast<int>(group.ranks()[place]);
    for (uint64_t index = 0; index < offer.count; ++index) {
      all[place].emplace_back(rpc, RemoteTensor::Where{.owner = owner, .id = offer.id, .index = index}, kept);
    }
  }
  return all;
}

}  // namespace sherd
