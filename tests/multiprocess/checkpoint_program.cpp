// A rank of a program that saves and loads: checkpoint_program PATH WHAT [WHO]. "saves N" writes the number N; "dies
// while saving", "dies while saving in the background" and "dies while loading": rank WHO is killed in the middle of
// it; "loads" prints the number that is there. Prints the error that this rank gets and exits with 3.

#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sherd/checkpoint.h"
#include "sherd/dtensor.h"
#include "sherd/world.h"

namespace {

constexpr int64_t kRows = 1 << 20;

sherd::StateDict state_of(const sherd::World& world, double number) {
  const auto mesh = sherd::init_device_mesh("cpu", {world.size()});
  const auto x = sherd::full({kRows}, number, mesh, {sherd::Shard(0)});
  return {{"x", x}, {"number", number}};
}

// A rank that has written or read something, but not all, is gone.
std::function<void(const sherd::CheckpointProgress&)> dies(bool here) {
  if (!here) return {};
  return [](const sherd::CheckpointProgress&) { std::raise(SIGKILL); };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  const std::string what = argc > 2 ? argv[2] : "";
  const double number = argc > 3 ? std::atof(argv[3]) : 0;
  try {
    const sherd::World world = sherd::init();
    const bool is_meant = world.rank() == static_cast<int>(number);
    sherd::StateDict state = state_of(world, what == "saves" ? number : 0);
    if (what == "saves") sherd::save(state, path);
    if (what == "dies while saving") sherd::save(state, path, {.progress = dies(is_meant)});
    if (what == "dies while saving in the background")
      sherd::save_async(state, path, {.progress = dies(is_meant)}).wait();
    if (what == "dies while loading") sherd::load(state, path, {.progress = dies(is_meant)});
    if (what == "loads") {
      sherd::load(state, path);
      const double there = *state.at("number").number();
      const bool whole = sherd::to_local(*state.at("x").tensor()).eq(there).all().item<bool>();
      std::printf("%s%g\n", whole ? "" : "a mixture of ", there);
    }
    return 0;
  } catch (const c10::Error& error) {
    std::printf("%s\n", error.what_without_backtrace());
    return 3;
  }
}
