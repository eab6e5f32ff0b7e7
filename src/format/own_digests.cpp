#include "format/own_digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "format/zip.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

// The first text of the header, so that its place is known.
constexpr const char* kDigestsKey = "sherd.digests";
constexpr std::string_view kBeforeText = "{\"__metadata__\":{\"sherd.digests\":\"";
// Beside it, so that a damaged name of the one does not hide that there are digests.
constexpr const char* kFormKey = "sherd.digests.form";
constexpr const char* kForm = "xxh3-128 of each MiB";
// Who reads a file, changes it and writes it anew may keep all texts, but not these spaces behind the header: without
// them the digests are those of another file.
constexpr size_t kSpaces = 64;

constexpr size_t kHex = 32;
constexpr int64_t kBytes = 16;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

[[noreturn]] void fail(std::string_view name, const Range& bytes, std::string_view detail) {
  throw std::invalid_argument(ErrorText("read_digests", "the bytes are not those that were written")
                                  .fact("in", name)
                                  .fact("bytes", fmt::format("{} to {}", bytes.begin, bytes.end))
                                  .fact("because", detail));
}

std::string to_text(std::span<const Digest> blocks) {
  std::string text;
  for (const Digest& digest : blocks) text += to_string(digest);
  return text;
}

std::optional<Digest> from_text(std::string_view text) {
  Digest digest;
  for (uint64_t* half : {&digest.high, &digest.low}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + kHex / 2, *half, 16);
    if (error != std::errc() || end != text.data() + kHex / 2) return std::nullopt;
    text.remove_prefix(kHex / 2);
  }
  return digest;
}

/// Compares the blocks that reach into `checked`, with `zeros` counted as such. All other digests are those of the
/// bytes as they are; these become so.
ManifestFile compared(const ByteSource& source, std::vector<Digest> blocks, const Range& zeros, const Range& checked,
                      std::string_view name) {
  for (int64_t begin = checked.begin / kBlock * kBlock; begin < checked.end; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, source.size());
    std::string bytes(static_cast<size_t>(end - begin), '\0');
    source.read(begin, std::as_writable_bytes(std::span(bytes)));
    Digest& saved = blocks[static_cast<size_t>(begin / kBlock)];
    const Digest here = digest_of(std::as_bytes(std::span(bytes)));
    const int64_t from = std::clamp(zeros.begin, begin, end) - begin;
    const int64_t to = std::clamp(zeros.end, begin, end) - begin;
    std::fill(bytes.begin() + from, bytes.begin() + to, kDigestZero);
    const Digest found = digest_of(std::as_bytes(std::span(bytes)));
    if (found != saved) {
      fail(name, {begin, end}, fmt::format("digest {}, written {}", to_string(found), to_string(saved)));
    }
    saved = here;
  }
  return {.name = {}, .length = source.size(), .blocks = std::move(blocks), .places = {}};
}

// Who unpacks an archive and packs it again keeps the record, but hardly any record begins where sherd lets it begin,
// seen from the end of the one before. One changed bit moves two of them at most.
bool is_packed_by_others(const Archive& archive) {
  size_t elsewhere = 0;
  int64_t offset = 0;
  for (const Record& each : archive.records) {
    const auto length = static_cast<int64_t>(archive.folder.size() + 1 + each.name.size());
    if (data_offset(offset, length, each.size) != each.offset) ++elsewhere;
    offset = each.offset + each.size + descriptor_length(offset, each.size);
  }
  return elsewhere > 2 && elsewhere > archive.records.size() / 2;
}

}  // namespace

DigestedHeader lay_out_with_digests(SafetensorsFile& file) {
  auto texts = std::move(file.metadata);
  texts.insert(texts.begin(), {{kDigestsKey, ""}, {kFormKey, kForm}});
  size_t blocks = 0;
  std::string header;
  do {  // the digests may need a block of their own
    blocks = static_cast<size_t>(block_count(file.size));
    texts.front().second.assign((blocks + 1) * kHex, kDigestZero);
    file.metadata = texts;
    header = lay_out_safetensors(file, kSpaces);
  } while (static_cast<size_t>(block_count(file.size)) != blocks);
  const size_t begin = 8 + kBeforeText.size();
  const size_t length = (blocks + 1) * kHex;
  return {header.substr(0, begin), static_cast<int64_t>(length), header.substr(begin + length)};
}

std::string digests_text(std::span<const Digest> blocks) {
  const std::string text = to_text(blocks);
  return text + to_string(digest_of(std::as_bytes(std::span(text))));
}

std::string digests_record(std::span<const Digest> blocks, std::span<const ZipEntry> others) {
  std::string crcs;
  for (const ZipEntry& entry : others) crcs.append(reinterpret_cast<const char*>(&entry.crc), sizeof(entry.crc));
  std::string content;
  const auto add = [&](const Digest& digest) {
    content.append(reinterpret_cast<const char*>(&digest.low), 8);
    content.append(reinterpret_cast<const char*>(&digest.high), 8);
  };
  for (const Digest& digest : blocks) add(digest);
  add(digest_of(std::as_bytes(std::span(crcs))));
  return content;
}

std::optional<ManifestFile> digests_in(const ByteSource& source, const SafetensorsFile& file, std::string_view name) {
  const std::string* const text = file.find_metadata(kDigestsKey);
  if (text == nullptr && file.find_metadata(kFormKey) == nullptr) return std::nullopt;
  uint64_t length = 0;
  source.read(0, std::as_writable_bytes(std::span(&length, 1)));
  std::string header(8 + length, '\0');
  source.read(0, std::as_writable_bytes(std::span(header)));
  if (!header.ends_with(std::string(kSpaces, ' '))) return std::nullopt;
  const Range all{0, static_cast<int64_t>(header.size())};
  const size_t begin = 8 + kBeforeText.size();
  const auto blocks = static_cast<size_t>(block_count(source.size()));
  if (text == nullptr || header.compare(8, kBeforeText.size(), kBeforeText) != 0 ||
      header.compare(begin, text->size(), *text) != 0 || text->size() != (blocks + 1) * kHex) {
    fail(name, all, "the header has no digests where it should");
  }
  const Range zeros{static_cast<int64_t>(begin), static_cast<int64_t>(begin + text->size())};
  std::vector<Digest> digests;
  for (size_t i = 0; i < blocks; ++i) {
    const auto digest = from_text(std::string_view(*text).substr(i * kHex, kHex));
    if (!digest) fail(name, zeros, "a digest is no number");
    digests.push_back(*digest);
  }
  if (digests_text(digests) != *text) fail(name, zeros, "the digest of the digests differs");
  return compared(source, std::move(digests), zeros, all, name);
}

std::optional<ManifestFile> digests_in(const ByteSource& source, const Archive& archive, std::string_view name) {
  const Record* const record = archive.find(kDigestsRecord);
  if (record == nullptr || is_packed_by_others(archive)) return std::nullopt;
  // Everything from its header on is what would be written now.
  std::vector<std::string> names;
  for (const Record& each : archive.records) names.push_back(archive.folder + "/" + each.name);
  std::vector<ZipEntry> entries;
  int64_t offset = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Record& each = archive.records[i];
    const auto length = static_cast<int64_t>(names[i].size());
    if (data_offset(offset, length, each.size) != each.offset) {
      fail(name, {offset, each.offset}, fmt::format("record {} does not begin where it should", each.name));
    }
    entries.push_back({names[i], offset, each.size, each.crc});
    offset = next_offset(offset, length, each.size);
  }
  const Range zeros{entries.back().offset, source.size()};
  const auto blocks = static_cast<size_t>(block_count(source.size()));
  if (record != &archive.records.back() || record->size != static_cast<int64_t>(blocks + 1) * kBytes) {
    fail(name, zeros, "the record of digests is not as long as it should be, or not the last one");
  }
  const std::string content = read_record(source, *record, name);
  std::vector<Digest> digests(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    std::memcpy(&digests[i].low, content.data() + i * kBytes, 8);
    std::memcpy(&digests[i].high, content.data() + i * kBytes + 8, 8);
  }
  if (digests_record(digests, std::span(entries).first(entries.size() - 1)) != content) {
    fail(name, zeros, "the CRCs in the directory are not those of the records");
  }
  std::string expected;
  append_local_header(expected, entries.back());
  expected += content;
  append_descriptor(expected, entries.back());
  append_directory(expected, entries, offset);
  std::string found(static_cast<size_t>(zeros.end - zeros.begin), '\0');
  source.read(zeros.begin, std::as_writable_bytes(std::span(found)));
  if (found != expected) fail(name, zeros, "the directory is not what would be written of these records");
  return compared(source, std::move(digests), zeros, zeros, name);
}

}  // namespace sherd::format
