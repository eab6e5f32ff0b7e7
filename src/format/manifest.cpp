#include "format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "sherd/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sherd::format {
namespace {

// "sherd manifest", version 1. Numbers are little endian, texts follow their length.
constexpr std::string_view kMagic("SHERDMF1", 8);
// A block's place, a digest: what the decoder may expect at least for each that a count promises.
constexpr uint64_t kPlaceBytes = 16;
constexpr uint64_t kDigestBytes = 16;

class Writer {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  void texts(const std::vector<std::string>& list) {
    number(static_cast<uint32_t>(list.size()));
    for (const std::string& item : list) text(item);
  }
  void raw(std::string_view bytes) { bytes_.append(bytes); }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string text() {
    const auto part = take(number<uint32_t>());
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::vector<std::string> texts() {
    std::vector<std::string> list;
    for (uint64_t left = count(number<uint32_t>(), sizeof(uint32_t)); left > 0; --left) list.push_back(text());
    return list;
  }
  // A number of things of at least `bytes` each, which must be there.
  uint64_t count(uint64_t promised, uint64_t bytes) {
    if (promised > bytes_.size() / bytes) fail("it ends too early");
    return promised;
  }
  size_t left() const { return bytes_.size(); }

  [[noreturn]] void fail(std::string_view problem) const {
    throw std::invalid_argument(ErrorText("load", "the manifest is damaged")
                                    .fact("file", source_)
                                    .fact("because", problem)
                                    .help("another checkpoint; without the manifest the files are read unchecked"));
  }

 private:
  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size()) fail("it ends too early");
    const auto part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
};

void put(Writer& out, const Digest& digest) {
  out.number(digest.low);
  out.number(digest.high);
}

Digest get_digest(Reader& in) {
  Digest digest;
  digest.low = in.number<uint64_t>();
  digest.high = in.number<uint64_t>();
  return digest;
}

uint64_t blocks_in(int64_t length) { return static_cast<uint64_t>((length + kBlock - 1) / kBlock); }

ManifestFile get_file(Reader& in, const Manifest& manifest) {
  ManifestFile file;
  file.name = in.text();
  file.length = in.number<int64_t>();
  if (file.length < 0) in.fail("a file has a negative length");
  const bool has_places = in.number<uint8_t>() != 0;
  for (uint64_t left = in.count(blocks_in(file.length), kDigestBytes); left > 0; --left) file.blocks.push_back(get_digest(in));
  if (!has_places) return file;
  for (uint64_t left = in.count(blocks_in(file.length), kPlaceBytes); left > 0; --left) {
    BlockPlace place;
    place.base = in.number<int32_t>();
    place.file = in.number<int32_t>();
    place.offset = in.number<int64_t>();
    const bool known = place.base >= 0 && static_cast<size_t>(place.base) <= manifest.bases.size() && place.file >= 0 &&
                       static_cast<size_t>(place.file) < manifest.stored_files.size() && place.offset >= 0;
    if (!known) in.fail("a block lies in a file that it does not name");
    file.places.push_back(place);
  }
  return file;
}

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t value = XXH3_128bits(bytes.data(), bytes.size());
  return {value.low64, value.high64};
}

std::string to_string(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

const ManifestFile* Manifest::find(std::string_view name) const {
  const auto found =
      std::lower_bound(files.begin(), files.end(), name, [](const ManifestFile& file, std::string_view n) { return file.name < n; });
  return found != files.end() && found->name == name ? &*found : nullptr;
}

std::string encode_manifest(const Manifest& manifest) {
  Writer out;
  out.raw(kMagic);
  out.text(manifest.id);
  out.texts(manifest.bases);
  out.texts(manifest.base_ids);
  out.texts(manifest.stored_files);
  out.number(static_cast<uint32_t>(manifest.files.size()));
  for (const ManifestFile& file : manifest.files) {
    out.text(file.name);
    out.number(file.length);
    out.number(static_cast<uint8_t>(!file.places.empty()));
    for (const Digest& digest : file.blocks) put(out, digest);
    for (const BlockPlace& place : file.places) {
      out.number(place.base);
      out.number(place.file);
      out.number(place.offset);
    }
  }
  put(out, digest_of(std::as_bytes(std::span(out.bytes()))));
  return std::move(out.bytes());
}

Manifest decode_manifest(std::span<const std::byte> bytes, std::string_view source) {
  Reader whole(bytes, source);
  if (bytes.size() < kMagic.size() + kDigestBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    whole.fail("it does not begin as one does, or is of another version");
  }
  Reader end(bytes.last(kDigestBytes), source);
  if (get_digest(end) != digest_of(bytes.first(bytes.size() - kDigestBytes))) whole.fail("its own digest differs");
  Reader in(bytes.subspan(kMagic.size(), bytes.size() - kMagic.size() - kDigestBytes), source);
  Manifest manifest;
  manifest.id = in.text();
  manifest.bases = in.texts();
  manifest.base_ids = in.texts();
  manifest.stored_files = in.texts();
  if (manifest.bases.size() != manifest.base_ids.size()) in.fail("a base has no id");
  for (uint64_t left = in.count(in.number<uint32_t>(), sizeof(uint32_t)); left > 0; --left) {
    manifest.files.push_back(get_file(in, manifest));
    const size_t n = manifest.files.size();
    if (n > 1 && !(manifest.files[n - 2].name < manifest.files[n - 1].name)) in.fail("its files are not in order");
  }
  if (in.left() > 0) in.fail("something follows its end");
  return manifest;
}

}  // namespace sherd::format
