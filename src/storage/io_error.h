#pragma once
// The texts of failed input and output: what was done, to which bytes of which file, why it failed, and what helps.

#include <cstdint>
#include <optional>
#include <string_view>

namespace sherd {

/// [begin, end) of a file.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// `error`: errno's number, or the negative of it. Throws StorageFailure, but std::runtime_error where there is no such
/// file.
[[noreturn]] void throw_io_error(std::string_view operation, std::string_view path, int64_t error,
                                 std::optional<ByteRange> bytes = {});

/// For a read that found the end of the file before `wanted.end`.
[[noreturn]] void throw_too_short(std::string_view path, int64_t size, ByteRange wanted);

/// For drivers without errno.
[[noreturn]] void throw_no_such_file(std::string_view operation, std::string_view path);
/// For a draft that is to be committed without the file that makes it a checkpoint.
[[noreturn]] void throw_incomplete_draft(std::string_view folder, std::string_view last);

}  // namespace sherd
