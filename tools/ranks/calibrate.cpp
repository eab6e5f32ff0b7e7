// sherd-calibrate [BACKEND]: one rank of `sherd calibrate`. Rank 0 prints a line for the shell.

#include <cstdio>
#include <exception>

#include "sherd/costs.h"
#include "sherd/redistribute.h"
#include "sherd/world.h"

int main(int argc, char** argv) {
  try {
    const sherd::World world = sherd::init({.backend = argc > 1 ? argv[1] : ""});
    const sherd::CommCosts costs = sherd::measure_costs(world);
    if (world.rank() == 0) std::printf("SHERD_COSTS=%s\n", to_string(costs).c_str());
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
