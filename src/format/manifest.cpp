// Little endian, numbers as LEB128 where they are mostly small:
//
//   "SHERDMF1"
//   id; bases: count, then folder and id each; stored files: count, names
//   files: count, then name, length, whether places follow, digests of 16 bytes, places
//   digest of everything before it, 16 bytes
//
// A text is its length and its bytes. A place is its base, its file, and its offset less the end of the place before:
// blocks that follow one another have zeros.

#include "format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr std::string_view kMagic = "SHERDMF1";
constexpr size_t kDigest = 16;

class Writer {
 public:
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  /// Small numbers of either sign are small.
  void difference(int64_t value) { number(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63)); }
  void text(std::string_view text) {
    number(text.size());
    bytes += text;
  }
  void digest(const Digest& digest) {
    char part[kDigest];
    std::memcpy(part, &digest.low, 8);
    std::memcpy(part + 8, &digest.high, 8);
    bytes.append(part, kDigest);
  }

  std::string bytes;
};

class Reader {
 public:
  Reader(std::string_view bytes, std::string_view source) : left_(bytes), source_(source) {}

  [[noreturn]] void fail(std::string_view problem) const {
    throw std::invalid_argument(ErrorText("decode_manifest", problem).fact("in", source_));
  }

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number is longer than 64 bits");
  }
  int64_t difference() {
    const uint64_t value = number();
    return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
  }
  /// A number of things that have at least `least` bytes each: no more than there are bytes for.
  size_t count(size_t least) {
    const uint64_t value = number();
    if (value > left_.size() / least) fail(fmt::format("{} things do not fit into {} bytes", value, left_.size()));
    return value;
  }
  std::string text() { return std::string(take(count(1))); }
  Digest digest() {
    const std::string_view part = take(kDigest);
    Digest digest;
    std::memcpy(&digest.low, part.data(), 8);
    std::memcpy(&digest.high, part.data() + 8, 8);
    return digest;
  }
  void end() const {
    if (!left_.empty()) fail(fmt::format("{} bytes too many", left_.size()));
  }
  size_t left() const { return left_.size(); }

 private:
  std::string_view take(size_t count) {
    if (count > left_.size()) fail("it ends too early");
    const std::string_view part = left_.substr(0, count);
    left_.remove_prefix(count);
    return part;
  }

  std::string_view left_;
  std::string_view source_;
};

void check(const Manifest& manifest) {
  const auto fail = [](std::string_view problem, std::string_view file) {
    throw std::invalid_argument(ErrorText("encode_manifest", problem).fact("file", file));
  };
  if (manifest.bases.size() != manifest.base_ids.size()) fail("every base needs an id", "");
  for (const ManifestFile& file : manifest.files) {
    const auto blocks = static_cast<size_t>(block_count(file.length));
    if (file.blocks.size() != blocks) fail("it has not one digest for each block", file.name);
    if (!file.places.empty() && file.places.size() != blocks) fail("it has not one place for each block", file.name);
    for (const BlockPlace& place : file.places) {
      if (place.base < 0 || static_cast<size_t>(place.base) > manifest.bases.size() || place.file < 0 ||
          static_cast<size_t>(place.file) >= manifest.stored_files.size() || place.offset < 0) {
        fail("a block's place is not among the bases and files", file.name);
      }
    }
  }
}

ManifestFile read_file(Reader& reader, const Manifest& manifest) {
  ManifestFile file;
  file.name = reader.text();
  const uint64_t length = reader.number();
  if (length > static_cast<uint64_t>(INT64_MAX)) reader.fail("a file has an impossible length");
  file.length = static_cast<int64_t>(length);
  const auto blocks = static_cast<size_t>(block_count(file.length));
  const uint64_t placed = reader.number();
  if (placed > 1) reader.fail("a mark is neither 0 nor 1");
  if (blocks > reader.left() / (kDigest + 3 * placed)) reader.fail("it ends too early");
  file.blocks.reserve(blocks);
  for (size_t i = 0; i < blocks; ++i) file.blocks.push_back(reader.digest());
  int64_t expected = 0;
  for (size_t i = 0; placed == 1 && i < blocks; ++i) {
    BlockPlace place;
    const uint64_t base = reader.number();
    const uint64_t stored = reader.number();
    if (base > manifest.bases.size() || stored >= manifest.stored_files.size()) {
      reader.fail("a block's place is not among the bases and files");
    }
    place.base = static_cast<int32_t>(base);
    place.file = static_cast<int32_t>(stored);
    int64_t end = 0;
    if (__builtin_add_overflow(expected, reader.difference(), &place.offset) || place.offset < 0 ||
        __builtin_add_overflow(place.offset, kBlock, &end)) {
      reader.fail("a block's place lies outside of any file");
    }
    expected = end;
    file.places.push_back(place);
  }
  return file;
}

}  // namespace

const ManifestFile* Manifest::find(std::string_view name) const {
  const auto found =
      std::lower_bound(files.begin(), files.end(), name,
                       [](const ManifestFile& file, std::string_view wanted) { return file.name < wanted; });
  return found != files.end() && found->name == name ? &*found : nullptr;
}

std::string encode_manifest(const Manifest& manifest) {
  check(manifest);
  std::vector<const ManifestFile*> files;
  for (const ManifestFile& file : manifest.files) files.push_back(&file);
  std::sort(files.begin(), files.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  for (size_t i = 1; i < files.size(); ++i) {
    if (files[i]->name == files[i - 1]->name) {
      throw std::invalid_argument(ErrorText("encode_manifest", "a file stands twice").fact("file", files[i]->name));
    }
  }

  Writer writer;
  writer.bytes = kMagic;
  writer.text(manifest.id);
  writer.number(manifest.bases.size());
  for (size_t i = 0; i < manifest.bases.size(); ++i) {
    writer.text(manifest.bases[i]);
    writer.text(manifest.base_ids[i]);
  }
  writer.number(manifest.stored_files.size());
  for (const std::string& name : manifest.stored_files) writer.text(name);
  writer.number(files.size());
  for (const ManifestFile* file : files) {
    writer.text(file->name);
    writer.number(static_cast<uint64_t>(file->length));
    writer.number(file->places.empty() ? 0 : 1);
    for (const Digest& digest : file->blocks) writer.digest(digest);
    int64_t expected = 0;
    for (const BlockPlace& place : file->places) {
      writer.number(static_cast<uint64_t>(place.base));
      writer.number(static_cast<uint64_t>(place.file));
      writer.difference(place.offset - expected);
      expected = place.offset + kBlock;
    }
  }
  writer.digest(digest_of(std::as_bytes(std::span(writer.bytes))));
  return std::move(writer.bytes);
}

Manifest decode_manifest(std::span<const std::byte> bytes, std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < kMagic.size() + kDigest) {
    const bool newer = text.starts_with(kMagic.substr(0, 7)) && text.size() > 7;
    ErrorText error("decode_manifest", newer ? "it is of another version" : "this is no manifest");
    error.fact("in", source);
    if (newer) error.help("a newer sherd wrote it: read the checkpoint with that one");
    throw std::invalid_argument(error);
  }
  const std::string_view body = text.substr(0, text.size() - kDigest);
  const Digest written = Reader(text.substr(body.size()), source).digest();
  const Digest found = digest_of(bytes.first(body.size()));
  if (written != found) {
    throw std::invalid_argument(ErrorText("decode_manifest", "the bytes are not those that were written")
                                    .fact("in", source)
                                    .fact("digest", to_string(found) + ", written " + to_string(written)));
  }
  Reader reader(body.substr(kMagic.size()), source);
  Manifest manifest;
  manifest.id = reader.text();
  for (size_t i = reader.count(2); i > 0; --i) {
    manifest.bases.push_back(reader.text());
    manifest.base_ids.push_back(reader.text());
  }
  for (size_t i = reader.count(1); i > 0; --i) manifest.stored_files.push_back(reader.text());
  for (size_t i = reader.count(3); i > 0; --i) {
    manifest.files.push_back(read_file(reader, manifest));
    const size_t n = manifest.files.size();
    if (n > 1 && manifest.files[n - 2].name >= manifest.files[n - 1].name) reader.fail("its files are not in order");
  }
  reader.end();
  return manifest;
}

}  // namespace sherd::format
