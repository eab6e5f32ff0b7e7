// A rank of a world of processes in which something goes wrong: what, for which rank, over which backend. Prints the
// error that this rank gets and exits with 3.

#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sherd/collectives.h"
#include "sherd/world.h"

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int who = argc > 2 ? std::atoi(argv[2]) : -1;
  const sherd::WorldOptions options{.backend = argc > 3 ? argv[3] : ""};
  const auto reduce = [](const sherd::World& world) {
    sherd::all_reduce(world.group(), at::ones({4})).wait();
    return 0;
  };
  if (what == "throws uncaught") {  // and nobody catches it
    const sherd::World world = sherd::init(options);
    sherd::barrier(world.group());
    if (world.rank() == who) throw std::runtime_error("the loss is not a number");
  }
  try {
    const sherd::World world = sherd::init(options);
    if (what == "throws uncaught") return reduce(world);
    sherd::barrier(world.group());
    if (world.rank() == who && what == "is killed") std::raise(SIGKILL);
    if (world.rank() == who && what == "aborts") std::abort();
    if (world.rank() == who && what == "ends early") return 0;
    if (world.rank() == who && what == "calls something else") {
      sherd::barrier(world.group());
      return 0;
    }
    return reduce(world);
  } catch (const c10::Error& error) {
    std::printf("%s\n", error.what_without_backtrace());
    return 3;
  }
}
