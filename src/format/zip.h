#pragma once
// Zip as PyTorchStreamWriter (miniz) writes it, to the byte: records are stored, lie at multiples of 64 bytes and have
// their CRC behind them; sizes and offsets of 4 GiB and more stand in zip64 fields.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sherd::format {

inline constexpr int64_t kZipAlignment = 64;
inline constexpr int64_t kZip64From = 0xFFFFFFFF;

struct ZipEntry {
  std::string_view name;  // with the folder
  int64_t offset = 0;     // of its local header
  int64_t size = 0;
  uint32_t crc = 0;
};

/// Bytes of the zip64 field, in the local header and in the directory: 0 where everything fits 32 bits.
constexpr int64_t zip64_length(int64_t offset, int64_t size) {
  const int64_t numbers = (size >= kZip64From ? 2 : 0) + (offset >= kZip64From ? 1 : 0);
  return numbers == 0 ? 0 : 4 + 8 * numbers;
}
/// Where the data of a record begins whose local header is at `offset`.
constexpr int64_t data_offset(int64_t offset, int64_t name_length, int64_t size) {
  const int64_t start = offset + 30 + name_length + zip64_length(offset, size) + 4;
  return (start + kZipAlignment - 1) & -kZipAlignment;
}
/// Of the CRC and sizes behind the data; an empty record has none.
constexpr int64_t descriptor_length(int64_t offset, int64_t size) {
  return size == 0 ? 0 : zip64_length(offset, size) == 0 ? 16 : 24;
}
/// Where the next record's local header lies.
constexpr int64_t next_offset(int64_t offset, int64_t name_length, int64_t size) {
  return data_offset(offset, name_length, size) + size + descriptor_length(offset, size);
}
constexpr int64_t directory_entry_length(int64_t offset, int64_t name_length, int64_t size) {
  return 46 + name_length + zip64_length(offset, size);
}
inline constexpr int64_t kDirectoryEnd = 56 + 20 + 22;

void append_local_header(std::string& out, const ZipEntry& entry);
void append_descriptor(std::string& out, const ZipEntry& entry);
/// `offset`: where the directory begins.
void append_directory(std::string& out, std::span<const ZipEntry> entries, int64_t offset);

}  // namespace sherd::format
