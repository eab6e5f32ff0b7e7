#include "format/manifest.h"

#include <gtest/gtest.h>

#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

Manifest made() {
  Manifest manifest;
  manifest.id = "4f1c";
  manifest.bases = {"step-1", "/elsewhere/step-0"};
  manifest.base_ids = {"a", "b"};
  manifest.stored_files = {"__0_0.distcp", "__1_0.distcp"};
  manifest.files = {
      {.name = ".metadata", .length = 5, .blocks = {{1, 2}}, .places = {}},
      {.name = "__0_0.distcp",
       .length = 3 * kBlock + 1,
       .blocks = {{3, 4}, {5, 6}, {7, 8}, {~uint64_t{0}, ~uint64_t{0}}},
       .places = {{0, 0, 0}, {1, 1, 7 * kBlock}, {1, 1, 8 * kBlock}, {2, 0, 3}}},
      {.name = "empty", .length = 0, .blocks = {}, .places = {}},
  };
  return manifest;
}

TEST(ManifestTest, ComesBack) { EXPECT_EQ(decode_manifest(bytes_of(encode_manifest(made())), "m"), made()); }

TEST(ManifestTest, FilesAreSortedAndFound) {
  Manifest manifest = made();
  std::swap(manifest.files[0], manifest.files[2]);
  const Manifest read = decode_manifest(bytes_of(encode_manifest(manifest)), "m");
  EXPECT_EQ(read, made());
  ASSERT_NE(read.find("__0_0.distcp"), nullptr);
  EXPECT_EQ(read.find("__0_0.distcp")->blocks.size(), 4U);
  EXPECT_EQ(read.find("__0_1.distcp"), nullptr);
}

TEST(ManifestTest, ABlockCostsLittleMoreThanItsDigest) {
  Manifest manifest;
  manifest.stored_files = {"f"};
  ManifestFile file{.name = "f", .length = 1000 * kBlock, .blocks = std::vector<Digest>(1000), .places = {}};
  for (int64_t i = 0; i < 1000; ++i) file.places.push_back({0, 0, i * kBlock});
  manifest.files = {file};
  EXPECT_LT(encode_manifest(manifest).size(), 19100U);
}

TEST(ManifestTest, DigestsAreXxh3) {
  // xxhsum -H2 of the same bytes.
  EXPECT_EQ(to_string(digest_of(bytes_of(""))), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_string(digest_of(bytes_of("abc"))), "06b05ab6733a618578af5f94892f3950");
}

TEST(ManifestTest, DigestsOfBlocksDoNotDependOnTheParts) {
  std::string bytes(static_cast<size_t>(3 * kBlock + 12345), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  std::vector<Digest> expected;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    expected.push_back(digest_of(bytes_of(std::string_view(bytes).substr(at, kBlock))));
  }
  for (const size_t part : {size_t{1000}, size_t{kBlock}, size_t{kBlock + 1}, bytes.size()}) {
    BlockDigests digests;
    for (size_t at = 0; at < bytes.size(); at += part) digests.add(bytes_of(std::string_view(bytes).substr(at, part)));
    EXPECT_EQ(digests.length(), static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(digests.finish(), expected) << part;
  }
  EXPECT_TRUE(BlockDigests().finish().empty());
}

TEST(ManifestTest, EveryFlippedBitIsFound) {
  const std::string bytes = encode_manifest(made());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      ASSERT_NE(test::refusal([&] { decode_manifest(bytes_of(damaged), "m"); }), "nothing") << i;
    }
    ASSERT_NE(test::refusal([&] { decode_manifest(bytes_of(bytes.substr(0, i)), "m"); }), "nothing") << i;
  }
}

}  // namespace
}  // namespace sherd::format
