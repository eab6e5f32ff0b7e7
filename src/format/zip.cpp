#include "format/zip.h"

#include <algorithm>
#include <cstring>

namespace sherd::format {
namespace {

/// The name is UTF-8, and the CRC follows the data where there are any.
uint16_t flags_of(const ZipEntry& entry) { return entry.size == 0 ? 0x0800 : 0x0808; }

template <class T>
void number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}
void u16(std::string& out, int64_t value) { number(out, static_cast<uint16_t>(value)); }
void u32(std::string& out, int64_t value) { number(out, static_cast<uint32_t>(value)); }
void u64(std::string& out, int64_t value) { number(out, static_cast<uint64_t>(value)); }
/// What does not fit is all ones: the zip64 field has it.
void u32_or_more(std::string& out, int64_t value) { u32(out, std::min(value, kZip64From)); }

void zip64(std::string& out, const ZipEntry& entry, int64_t compressed_size) {
  const int64_t length = zip64_length(entry.offset, entry.size);
  if (length == 0) return;
  u16(out, 1);
  u16(out, length - 4);
  if (entry.size >= kZip64From) {
    u64(out, entry.size);
    u64(out, compressed_size);
  }
  if (entry.offset >= kZip64From) u64(out, entry.offset);
}

}  // namespace

void append_local_header(std::string& out, const ZipEntry& entry) {
  const auto name_length = static_cast<int64_t>(entry.name.size());
  const int64_t extra = zip64_length(entry.offset, entry.size);
  const int64_t padding = data_offset(entry.offset, name_length, entry.size) - entry.offset - 30 - name_length - extra;
  out += "PK\3\4";
  u16(out, 0);
  u16(out, flags_of(entry));
  u16(out, 0);  // stored
  u32(out, 0);  // no time
  u32(out, 0);  // CRC and sizes: behind the data
  u32(out, 0);
  u32(out, 0);
  u16(out, name_length);
  u16(out, extra + padding);
  out += entry.name;
  zip64(out, entry, 0);  // miniz does not know the second size yet
  out += "FB";
  u16(out, padding - 4);
  out.append(static_cast<size_t>(padding - 4), 'Z');
}

void append_descriptor(std::string& out, const ZipEntry& entry) {
  if (entry.size == 0) return;
  out += "PK\7\10";
  number(out, entry.crc);
  for (int i = 0; i < 2; ++i) {
    if (zip64_length(entry.offset, entry.size) == 0) {
      u32(out, entry.size);
    } else {
      u64(out, entry.size);
    }
  }
}

void append_directory(std::string& out, std::span<const ZipEntry> entries, int64_t offset) {
  const size_t begin = out.size();
  for (const ZipEntry& entry : entries) {
    out += "PK\1\2";
    u16(out, 0);
    u16(out, 0);
    u16(out, flags_of(entry));
    u16(out, 0);
    u32(out, 0);
    number(out, entry.crc);
    u32_or_more(out, entry.size);
    u32_or_more(out, entry.size);
    u16(out, static_cast<int64_t>(entry.name.size()));
    u16(out, zip64_length(entry.offset, entry.size));
    u16(out, 0);  // no comment
    u16(out, 0);  // first disk
    u16(out, 0);
    u32(out, 0);
    u32_or_more(out, entry.offset);
    out += entry.name;
    zip64(out, entry, entry.size);
  }
  const auto size = static_cast<int64_t>(out.size() - begin);
  const auto count = static_cast<int64_t>(entries.size());
  out += "PK\6\6";
  u64(out, 44);
  u16(out, 0x031e);
  u16(out, 45);
  u32(out, 0);
  u32(out, 0);
  u64(out, count);
  u64(out, count);
  u64(out, size);
  u64(out, offset);
  out += "PK\6\7";
  u32(out, 0);
  u64(out, offset + size);
  u32(out, 1);
  out += "PK\5\6";
  u16(out, 0);
  u16(out, 0);
  u16(out, std::min<int64_t>(count, 0xFFFF));
  u16(out, std::min<int64_t>(count, 0xFFFF));
  u32_or_more(out, size);
  u32_or_more(out, offset);
  u16(out, 0);
}

}  // namespace sherd::format
