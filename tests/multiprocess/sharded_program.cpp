// A rank of a world of processes: ShardedTensors made, gathered, cut anew, compared and refused. Exits with 0 when
// everything is right.

#include <torch/torch.h>

#include "expect.h"
#include "sherd/sherd.h"

namespace {

using namespace sherd::sharded;

ChunkShardingSpec chunks(int64_t dim, int64_t ranks, int64_t turn) {
  std::vector<RemoteDevice> placements;
  for (int64_t r = 0; r < ranks; ++r) placements.emplace_back((r + turn) % ranks, c10::Device(c10::kCPU));
  return {dim, std::move(placements)};
}

at::Tensor gathered(const ShardedTensor& tensor, int64_t dst) {
  const bool here = tensor.group()->rank() == dst;
  const at::Tensor out = torch::empty(tensor.sizes(), tensor.dtype());
  tensor.gather(dst, here ? std::optional(out) : std::nullopt);
  return here ? out : at::Tensor();
}

void check(const sherd::World& world) {
  const int64_t n = world.size();
  const at::Tensor whole = torch::arange(5 * 7, torch::kLong).view({5, 7}) + (int64_t{1} << 40);
  for (int64_t turn = 0; turn < n; ++turn) {
    const ShardedTensor rows = shard_tensor(whole, chunks(0, n, turn), turn);
    const ShardedTensor columns = rows.reshard(chunks(1, n, 1));
    for (const ShardedTensor& tensor : {rows, columns, ShardedTensor(rows + columns - rows)}) {
      const at::Tensor out = gathered(tensor, turn);
      if (out.defined()) expect(out.equal(whole), "gather");
    }
    expect(rows.sum().equal(whole.sum()), "sum");
    expect(rows.equal(rows.clone()), "equal");
    expect(sherd::full_tensor(to_dtensor(columns)).equal(whole), "to_dtensor");
  }
  std::vector<Shard> shards;
  if (world.rank() > 0) {
    shards.push_back(Shard::from_tensor_and_offsets(torch::full({world.rank()}, world.rank()), {0}, world.rank()));
  }
  if (n > 1) {
    const ShardedTensor found = init_from_local_shards(shards, std::vector<std::optional<int64_t>>{std::nullopt});
    expect(found.size(0) == n * (n - 1) / 2, "open size");
    expect(found.sum().item<double>() == static_cast<double>((n - 1) * n * (2 * n - 1) / 6), "sum of found");
  }
  // A mistake of the last rank reaches all.
  bool refused = false;
  try {
    shard_tensor(whole, chunks(world.rank() == n - 1 ? 5 : 0, n, 0));
  } catch (const c10::ValueError& error) {
    refused = std::string(error.what_without_backtrace()).find("rank " + std::to_string(n - 1)) != std::string::npos;
  }
  expect(refused, "an error on every rank");
}

}  // namespace

int main(int argc, char** argv) {
  const auto world = sherd::init({.backend = argc > 1 ? argv[1] : "", .timeout = std::chrono::seconds(60)});
  check(world);
  return mistakes;
}
