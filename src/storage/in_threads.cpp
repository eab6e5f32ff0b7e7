#include "storage/in_threads.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sherd {

void in_threads(size_t threads, const std::function<void()>& work) {
  // Beyond one for each core, threads wait for the disk: four at least keep it busy, and 16 any disk.
  const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 16);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(threads, most); ++i) {
    try {
      others.emplace_back(guarded);
    } catch (const std::system_error&) {
      break;  // no more threads are to be had: those there are do the work
    }
  }
  guarded();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sherd
