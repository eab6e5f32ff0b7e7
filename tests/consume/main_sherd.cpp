// Uses sherd with libtorch: two ranks as threads add up their numbers.

#include <ATen/ops/full.h>
#include <sherd/collectives.h>
#include <sherd/world.h>

#include <iostream>

int main() {
  double sum = 0;
  sherd::spawn(2, [&](sherd::World& world) {
    auto x = at::full({3}, world.rank() + 1.0);
    sherd::all_reduce(world.group(), x).wait();
    if (world.rank() == 0) sum = x[0].item<double>();
  });
  std::cout << sum << "\n";
  return sum == 3 ? 0 : 1;
}
