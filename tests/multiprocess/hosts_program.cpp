// A rank of a world whose ranks are on several hosts, some of them on one: collectives over all of them, a DTensor that
// is moved between placements, and with the argument rpc the tensors of all ranks, fetched. Exits with 0 when
// everything is right.

#include <torch/torch.h>

#include <cstdio>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "expect.h"
#include "sherd/collectives.h"
#include "sherd/device_mesh.h"
#include "sherd/dtensor.h"
#include "sherd/redistribute.h"
#include "sherd/rpc.h"
#include "sherd/world.h"

namespace {

void check_collectives(const sherd::Group& group) {
  const int n = group.size();
  const int me = group.rank();
  for (const int64_t numel : {5, 300'000}) {  // below and above the size at which transports change their ways
    const at::Tensor mine = at::arange(numel, at::kLong) + me;
    const at::Tensor total = mine.clone();
    sherd::all_reduce(group, total).wait();
    expect(at::equal(total, at::arange(numel, at::kLong) * n + n * (n - 1) / 2), "all_reduce");
    const at::Tensor all = at::empty({n, numel}, at::kLong);
    sherd::all_gather(group, all, mine).wait();
    expect(at::equal(all, at::arange(numel, at::kLong) + at::arange(n).unsqueeze(1)), "all_gather");
    const at::Tensor part = at::empty({numel}, at::kLong);
    sherd::reduce_scatter(group, part, all).wait();
    expect(at::equal(part, mine * n), "reduce_scatter");
    const at::Tensor exchanged = at::empty_like(all);
    sherd::all_to_all(group, exchanged, mine.repeat({n})).wait();
    expect(at::equal(exchanged, all), "all_to_all");
    sherd::broadcast(group, part, n - 1).wait();
    expect(at::equal(part, (at::arange(numel, at::kLong) + n - 1) * n), "broadcast");
    const at::Tensor received = at::empty({numel}, at::kLong);
    sherd::Work sent = sherd::send(group, mine, (me + 1) % n);
    sherd::receive(group, received, (me + n - 1) % n).wait();
    sent.wait();
    expect(at::equal(received, all[(me + n - 1) % n]), "send and receive");
  }
  sherd::barrier(group);
}

void check_redistribution(int ranks) {
  const sherd::DeviceMesh mesh = sherd::init_device_mesh("cpu", {ranks}, {"tp"});
  const at::Tensor whole = at::arange(37 * 23, at::kFloat).view({37, 23});
  const auto rows = sherd::distribute_tensor(whole, mesh, {sherd::Shard(0)});
  const auto columns = sherd::redistribute(rows, {sherd::Shard(1)});
  expect(at::equal(sherd::full_tensor(columns), whole), "Shard(0) to Shard(1)");
  const at::Tensor product = at::mm(columns, sherd::redistribute(rows, {sherd::Shard(1)}).t());  // a Partial
  expect(at::allclose(sherd::full_tensor(product), at::mm(whole, whole.t())), "Partial to Replicate");
}

void check_rpc(const sherd::World& world) {
  sherd::init_rpc(world);
  const auto shared = sherd::share_tensors(world.group(), world, {at::arange(300'000) + world.rank()});
  for (int owner = 0; owner < world.size(); ++owner) {
    expect(at::equal(shared[static_cast<size_t>(owner)][0].to_here(), at::arange(300'000) + owner), "to_here");
  }
  sherd::shutdown_rpc(world);
}

}  // namespace

int main(int argc, char** argv) {
  const sherd::World world = sherd::init();
  const std::string name = world.group().backend(c10::DeviceType::CPU)->getBackendName();
  expect(name == "hierarchical", "the transport");
  check_collectives(world.group());
  check_redistribution(world.size());
  if (argc > 1 && std::string(argv[1]) == "rpc") check_rpc(world);
  std::printf("rank %d: %s, %d mistakes\n", world.rank(), name.c_str(), mistakes);
  return mistakes == 0 ? 0 : 1;
}
