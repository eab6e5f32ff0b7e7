// A rank of a world of processes: a 2x2 mesh and every collective on it, over the backend that its argument names.
// Exits with 0 when everything is right.

#include <torch/torch.h>

#include <cstdio>

#include "expect.h"
#include "sherd/collectives.h"
#include "sherd/device_mesh.h"
#include "sherd/world.h"

namespace {

void check_collectives(const sherd::Group& group) {
  const int n = group.size();
  const int me = group.rank();
  const at::Tensor mine = at::full({3}, me, at::kLong);
  const at::Tensor all = at::empty({n, 3}, at::kLong);
  sherd::all_gather(group, all, mine).wait();
  expect(at::equal(all.select(1, 0), at::arange(n)), "all_gather");

  std::vector<int64_t> numels;
  for (int i = 0; i < n; ++i) numels.push_back(i);
  const at::Tensor uneven = at::empty({n * (n - 1) / 2}, at::kLong);
  sherd::all_gather_uneven(group, uneven, mine.new_full({me}, me), numels).wait();
  expect(at::equal(uneven, at::repeat_interleave(at::arange(n), at::tensor(numels))), "all_gather_uneven");

  const at::Tensor total = mine.clone();
  sherd::all_reduce(group, total).wait();
  expect(at::equal(total, at::full({3}, n * (n - 1) / 2, at::kLong)), "all_reduce");

  const at::Tensor part = at::empty({3}, at::kLong);
  sherd::reduce_scatter(group, part, all).wait();
  expect(at::equal(part, mine * n), "reduce_scatter");

  const at::Tensor exchanged = at::empty_like(all);
  sherd::all_to_all(group, exchanged, mine.repeat({n})).wait();
  expect(at::equal(exchanged, all), "all_to_all");

  const at::Tensor from_last = mine.clone();
  sherd::broadcast(group, from_last, n - 1).wait();
  expect(at::equal(from_last, at::full({3}, n - 1, at::kLong)), "broadcast");

  const at::Tensor block = at::empty({3}, at::kLong);
  sherd::scatter(group, block, me == 0 ? all : at::Tensor(), 0).wait();
  expect(at::equal(block, mine), "scatter");

  const at::Tensor received = at::empty({3}, at::kLong);
  sherd::Work sent = sherd::send(group, mine, (me + 1) % n, 3);
  sherd::receive(group, received, (me + n - 1) % n, 3).wait();
  sent.wait();
  expect(at::equal(received, at::full({3}, (me + n - 1) % n, at::kLong)), "send and receive");

  sherd::barrier(group);
  std::vector<std::string> texts;
  for (int i = 0; i < n; ++i) texts.push_back(std::string(static_cast<size_t>(i), 'x'));
  expect(sherd::all_gather_text(group, texts[static_cast<size_t>(me)]) == texts, "all_gather_text");
}

}  // namespace

int main(int argc, char** argv) {
  const sherd::World world = sherd::init({.backend = argc > 1 ? argv[1] : ""});
  expect(world == sherd::init() && world == sherd::current_world(), "one world");
  expect(world.size() == 4 && world.local_size() == 4, "four ranks");
  const sherd::DeviceMesh mesh = sherd::init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  check_collectives(world.group());
  check_collectives(mesh.group("dp"));
  check_collectives(mesh.group("tp"));
  if (world.rank() == 0) {
    std::printf("rank 0 ends first\n");
    return mistakes;
  }
  // The others go on without it, with a group that nobody has used before.
  check_collectives(world.group({3, 1, 2}));
  std::printf("rank %d is done\n", world.rank());
  return mistakes;
}
