// A rank of a world of processes in which something goes wrong: what, for which rank, over which backend. Prints the
// error that this rank gets and exits with 3.

#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "sherd/collectives.h"
#include "sherd/world.h"

namespace {

// The memory that this process shares with others: a line for each segment, with its device, inode and path.
void print_segments() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/") == std::string::npos && line.find("/memfd:sherd") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, permissions, offset, device, inode, path;
    words >> range >> permissions >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    std::printf("segment %s %s %s\n", device.c_str(), inode.c_str(), path.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

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
    if (what == "joins another world") sherd::init_with_store(c10::make_intrusive<c10d::HashStore>(), 1, 3);
    if (what == "is killed with its memory" || what == "all are killed with their memory") {
      // A message that nobody takes, too.
      sherd::send(world.group(), at::ones({4}), (world.rank() + 1) % world.size(), 1).wait();
      print_segments();
      sherd::barrier(world.group());
      if (world.rank() == who || what == "all are killed with their memory") std::raise(SIGKILL);
    }
    if (world.rank() == who && what == "is killed") std::raise(SIGKILL);
    if (world.rank() == who && what == "aborts") std::abort();
    if (world.rank() == who && what == "ends early") return 0;
    if (world.rank() == who && what == "is late") std::this_thread::sleep_for(std::chrono::seconds(8));
    if (what == "is killed while it calls") {
      std::thread killer;
      if (world.rank() == who) {
        killer = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          std::raise(SIGKILL);
        });
      }
      const at::Tensor large = at::ones({2'000'000});
      for (;;) sherd::all_reduce(world.group(), large).wait();
    }
    if (what == "sends and ends") {  // the other way round than it was sent, and when the sender is about to end
      const at::Tensor large = at::full({3'000'000}, 7, at::kInt);
      if (world.rank() == who) {
        sherd::send(world.group(), large, 0, 1).wait();
        sherd::send(world.group(), large.narrow(0, 0, 1), 0, 2).wait();
        return 0;
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
      if (world.rank() == 0) {
        const at::Tensor small = at::zeros({1}, at::kInt);
        const at::Tensor got = at::zeros({3'000'000}, at::kInt);
        sherd::receive(world.group(), small, who, 2).wait();
        sherd::receive(world.group(), got, who, 1).wait();
        return at::equal(got, large) && small.item<int>() == 7 ? 0 : 1;
      }
      return 0;
    }
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
