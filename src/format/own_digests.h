#pragma once
// Digests that a checkpoint of one file carries in itself: of each of its blocks, as a manifest has them. The bytes in
// which they stand count as zeros ('0') for that.
//
// safetensors: in the header, texts that others skip. An archive: the last record, which torch does not look for.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/archive.h"
#include "format/manifest.h"
#include "format/safetensors.h"

namespace sherd::format {

inline constexpr char kDigestZero = '0';

/// lay_out_safetensors with room for digests: the header in two parts, and how many bytes of digests lie between them.
struct DigestedHeader {
  std::string before;
  int64_t digests = 0;
  std::string after;
};
DigestedHeader lay_out_with_digests(SafetensorsFile& file);
/// What stands between them.
std::string digests_text(std::span<const Digest> blocks);

/// The record of digests of an archive: of the blocks, and of the CRCs of the other records, which stand in the
/// directory once more.
std::string digests_record(std::span<const Digest> blocks, std::span<const ZipEntry> others);

/// The digests of all blocks as they are in the file, after everything that is read to open it was compared with those
/// that the file carries; nothing where it carries none. Throws std::invalid_argument, naming the bytes, where they
/// differ.
std::optional<ManifestFile> digests_in(const ByteSource& source, const SafetensorsFile& file, std::string_view name);
std::optional<ManifestFile> digests_in(const ByteSource& source, const Archive& archive, std::string_view name);

}  // namespace sherd::format
