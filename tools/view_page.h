#pragma once
// The page that `sherd view` writes: everything but the numbers.

namespace sherd::tools {

/// Stands before the JSON of a checkpoint.
extern const char* const kViewPageHead;
/// Stands after it. Only the rows on the screen are drawn, so that thousands of tensors scroll.
extern const char* const kViewPageTail;

}  // namespace sherd::tools
