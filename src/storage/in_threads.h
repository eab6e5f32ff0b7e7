#pragma once
// A few threads for one piece of work.

#include <cstddef>
#include <functional>

namespace sherd {

/// Calls `work` in `threads` threads at once, the calling one among them; in fewer where no more are to be had. Returns
/// when all have returned; throws what one of them threw.
void in_threads(size_t threads, const std::function<void()>& work);

}  // namespace sherd
