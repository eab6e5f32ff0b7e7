#pragma once

namespace sherd::tools {

/// Gives the heap room in large pages, before anything is in it. A checkpoint's metadata are read, told and forgotten:
/// without this half of the time goes to the kernel, which hands out memory in pages of 4 KiB, one fault each. What is
/// not touched takes no memory. Does nothing where the C library or the kernel knows no such thing.
void make_heap_roomy();

}  // namespace sherd::tools
