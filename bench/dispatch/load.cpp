// How long a library takes to load over those before it: load LIBRARY... prints the milliseconds of each, as JSON.
// Links nothing, so that the first library finds an empty process.

#include <dlfcn.h>

#include <chrono>
#include <cstdio>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (dlopen(argv[i], RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      std::fprintf(stderr, "load: %s\n", dlerror());
      return 1;
    }
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::printf("%s%.3f", i == 1 ? "[" : ", ", time.count());
  }
  std::puts("]");
}
