// A rank of a world of processes that fetches the tensors of the others: what happens, and to which rank. Prints the
// error that this rank gets and exits with 3; exits with 0 when everything is right.

#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "expect.h"
#include "sherd/collectives.h"
#include "sherd/rpc.h"
#include "sherd/world.h"

namespace {

// By number.
std::map<std::string, std::string> names_of_threads() {
  std::map<std::string, std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names[task.path().filename()] = name;
  }
  return names;
}

at::Tensor tensor_of(int rank, int64_t size) { return at::arange(size, at::kFloat) + 1000 * rank; }

using Shared = std::vector<std::vector<sherd::RemoteTensor>>;

Shared share(const sherd::World& world) {
  Shared shared =
      sherd::share_tensors(world.group(), world, {tensor_of(world.rank(), 7), tensor_of(world.rank(), 500'000)});
  for (int owner = 0; owner < world.size(); ++owner) {
    const auto& theirs = shared[static_cast<size_t>(owner)];
    expect(theirs.size() == 2 && theirs[0].owner() == owner, "the owner");
    expect(at::equal(theirs[0].to_here(), tensor_of(owner, 7)), "a small tensor");
    expect(at::equal(theirs[1].to_here(), tensor_of(owner, 500'000)), "a large tensor");
  }
  return shared;
}

// What a rank still shares when it ends.
const Shared* kept = nullptr;

// Fetches until that leads to an error.
[[noreturn]] void fetch_for_ever(const sherd::RemoteTensor& tensor) {
  for (;;) tensor.to_here();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int who = argc > 2 ? std::atoi(argv[2]) : -1;
  try {
    const sherd::World world = sherd::init();
    sherd::barrier(world.group());
    // torch's own threads, which start with the first large operator and stay, are not RPC's: let them start before.
    at::set_num_threads(3);
    expect(at::equal(tensor_of(0, 500'000), tensor_of(0, 500'000)), "the same tensor twice");
    const auto threads = names_of_threads();
    sherd::init_rpc(world);
    const Shared shared = share(world);
    const bool is_me = world.rank() == who;
    sherd::barrier(world.group());
    if (what == "forgets to shut down") return mistakes;
    if (what == "is killed") {
      if (is_me) std::raise(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      shared[static_cast<size_t>(who)][0].to_here();
    }
    if (what == "is killed while others fetch") {
      if (!is_me) fetch_for_ever(shared[static_cast<size_t>(who)][1]);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      std::raise(SIGKILL);
    }
    if (what == "is killed before the shutdown" && is_me) std::raise(SIGKILL);
    if (what == "throws uncaught") {
      if (!is_me) fetch_for_ever(shared[static_cast<size_t>(who)][0]);
      std::thread([] { throw std::runtime_error("the loss is not a number"); }).join();
    }
    if (what == "ends early") {
      if (is_me) {
        kept = new Shared(shared);  // it ends while it still shares them
        return 0;
      }
      fetch_for_ever(shared[static_cast<size_t>(who)][0]);
    }
    sherd::shutdown_rpc(world);
    for (int i = 0; i < 200 && names_of_threads().size() != threads.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // one that was joined may be listed a moment longer
    }
    for (const auto& [id, name] : names_of_threads())
      expect(threads.count(id) == 1, ("no thread is left: " + name).c_str());
    std::printf("rank %d is done\n", world.rank());
    return mistakes;
  } catch (const c10::Error& error) {
    std::printf("%s\n", error.what_without_backtrace());
    return 3;
  }
}
