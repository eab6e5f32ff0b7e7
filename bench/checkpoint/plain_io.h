#pragma once
// What the machine can do: writing, reading and copying bytes by plain calls, one after the other.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// Makes a file of these bytes by calls of `step` bytes each, and syncs it.
void plain_write(const std::string& path, std::span<const std::byte> bytes, size_t step);

/// Reads a file's first bytes by calls of `step` bytes each.
void plain_read(const std::string& path, std::span<std::byte> into, size_t step);

/// Forgets what the kernel keeps of files, where this process may (as root); returns whether it could.
bool forget_cached_files();

/// The memory that this process has now, and the most that it has had since forget_most_memory(), which needs no right
/// but that to write to /proc.
int64_t memory_now();
int64_t most_memory();
void forget_most_memory();
