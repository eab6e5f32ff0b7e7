// Manifests that are damaged, or whose digest is right and whose content is not.

#include <gtest/gtest.h>

#include "format/manifest.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using namespace std::string_literals;
using test::bytes_of;

/// With the digest that makes it believable.
std::string signed_bytes(const std::string& body) {
  const Digest digest = digest_of(bytes_of(body));
  return body + std::string(reinterpret_cast<const char*>(&digest.low), 8) +
         std::string(reinterpret_cast<const char*>(&digest.high), 8);
}
std::string refused(const std::string& bytes) {
  return test::refusal([&] { decode_manifest(bytes_of(bytes), "sherd.manifest"); });
}
std::string refused_body(const std::string& body) {
  const std::string text = refused(signed_bytes("SHERDMF1" + body));
  return text.substr(0, text.find('\n'));
}

TEST(ManifestErrors, WhatIsNoManifestIsSaidToBeNone) {
  EXPECT_EQ(refused(""), "decode_manifest: this is no manifest\n  in: sherd.manifest");
  EXPECT_EQ(refused(std::string(100, 'x')), "decode_manifest: this is no manifest\n  in: sherd.manifest");
  EXPECT_EQ(refused("SHERDMF2" + std::string(100, 'x')),
            "decode_manifest: it is of another version\n  in: sherd.manifest\n"
            "  help: a newer sherd wrote it: read the checkpoint with that one");
}

TEST(ManifestErrors, AWrongDigestShowsBoth) {
  std::string bytes = encode_manifest({});
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const std::string text = refused(bytes);
  EXPECT_EQ(text.substr(0, 90),
            "decode_manifest: the bytes are not those that were written\n  in: sherd.manifest\n  digest: ");
}

TEST(ManifestErrors, CountsAreBoundedByTheBytes) {
  EXPECT_EQ(refused_body("\0\0\0\0"s), "nothing");
  EXPECT_EQ(refused_body("\x05"s), "decode_manifest: 5 things do not fit into 0 bytes");
  EXPECT_EQ(refused_body("\0\xff\xff\xff\xff\x0f\0\0"s), "decode_manifest: 4294967295 things do not fit into 2 bytes");
  EXPECT_EQ(refused_body("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"s),
            "decode_manifest: a number is longer than 64 bits");
  EXPECT_EQ(refused_body("\0\0\0\0\0"s), "decode_manifest: 1 bytes too many");
  EXPECT_EQ(refused_body("\0\0\0"s), "decode_manifest: it ends too early");
  // One file of 2^60 bytes: its digests cannot be there.
  EXPECT_EQ(refused_body("\0\0\0\x01\x01"
                         "f\x80\x80\x80\x80\x80\x80\x80\x80\x10\0"s),
            "decode_manifest: it ends too early");
  EXPECT_EQ(refused_body("\0\0\0\x01\x01"
                         "f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"s),
            "decode_manifest: a file has an impossible length");
}

TEST(ManifestErrors, PlacesAreAmongTheBasesAndFiles) {
  const std::string file =
      "\0\0\x01\x01s\x01\x01"
      "f\x05\x01"s +
      std::string(16, 'd');
  EXPECT_EQ(refused_body(file + "\0\0\x06"s), "nothing");
  EXPECT_EQ(refused_body(file + "\x01\0\0"s), "decode_manifest: a block's place is not among the bases and files");
  EXPECT_EQ(refused_body(file + "\0\x01\0"s), "decode_manifest: a block's place is not among the bases and files");
  EXPECT_EQ(refused_body(file + "\0\0\x05"s), "decode_manifest: a block's place lies outside of any file");
  EXPECT_EQ(refused_body("\0\0\0\x02\x01"
                         "b\0\0\x01"
                         "a\0\0"s),
            "decode_manifest: its files are not in order");
}

TEST(ManifestErrors, AManifestThatContradictsItselfIsNotWritten) {
  Manifest manifest;
  manifest.files = {{.name = "f", .length = kBlock + 1, .blocks = {{}}, .places = {}}};
  EXPECT_EQ(test::refusal([&] { encode_manifest(manifest); }),
            "encode_manifest: it has not one digest for each block\n  file: f");
  manifest.files = {{.name = "f", .length = 1, .blocks = {{}}, .places = {{0, 0, 0}}}};
  EXPECT_EQ(test::refusal([&] { encode_manifest(manifest); }),
            "encode_manifest: a block's place is not among the bases and files\n  file: f");
  manifest.files = {{.name = "f", .length = 0, .blocks = {}, .places = {}},
                    {.name = "f", .length = 0, .blocks = {}, .places = {}}};
  EXPECT_EQ(test::refusal([&] { encode_manifest(manifest); }), "encode_manifest: a file stands twice\n  file: f");
}

}  // namespace
}  // namespace sherd::format
