#pragma once

namespace sherd::detail {

/// Gloo and TensorPipe write to their sockets without MSG_NOSIGNAL: a rank that is gone would end this process by a
/// signal instead of an error. Python ignores that signal from the start; a program that has no handler of its own gets
/// the same by this call.
void ignore_broken_pipes();

}  // namespace sherd::detail
