#include "sherd/blocking.h"

namespace sherd {
namespace {

BlockingHooks installed;

}  // namespace

void set_blocking_hooks(BlockingHooks hooks) { installed = hooks; }

namespace detail {

BlockingScope::BlockingScope() {
  if (installed.begin != nullptr) state_ = installed.begin();
}

BlockingScope::~BlockingScope() {
  if (installed.end != nullptr) installed.end(state_);
}

}  // namespace detail
}  // namespace sherd
