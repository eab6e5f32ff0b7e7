#include "storage/in_threads.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sherd {

void in_threads(size_t threads, const std::function<void()>& work) {
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
  for (size_t i = 1; i < threads; ++i) {
    try {
      others.emplace_back(guarded);
    } catch (const std::system_error&) {
      break;  // those there are do the work
    }
  }
  guarded();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sherd
