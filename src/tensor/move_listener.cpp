#include "tensor/move_listener.h"

namespace sherd::detail {
namespace {

thread_local MoveListener* this_threads_listener = nullptr;

}  // namespace

MoveListener* move_listener() { return this_threads_listener; }
void set_move_listener(MoveListener* listener) { this_threads_listener = listener; }

}  // namespace sherd::detail
