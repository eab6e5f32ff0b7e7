#include "format/transforms.h"

#include <gtest/gtest.h>

#include <limits>

#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

constexpr int64_t kMost = int64_t{1} << 30;
const std::vector<std::string> kZstd = {"stream.zstd/1"};

std::string refused(const std::vector<std::string>& transforms, const std::string& bytes, int64_t most = kMost) {
  return test::refusal([&] { decode(transforms, bytes_of(bytes), most); });
}

TEST(TransformsTest, NoneLeavesTheBytes) {
  EXPECT_EQ(decode({}, bytes_of("abc"), kMost), "abc");
  EXPECT_EQ(encode({}, bytes_of("abc")), "abc");
}

TEST(TransformsTest, WhatIsNotKnownIsNamed) {
  EXPECT_EQ(refused({"stream.lz4@example.org/1"}, ""),
            "load: an item was changed in a way that is not known\n  transform: stream.lz4@example.org/1\n"
            "  known: stream.zstd/1\n  help: save it without this extension");
  for (const std::string name :
       {"stream.zstd/2", "stream.zstd", "stream.zstd/", "stream.zstd/10", "xstream.zstd/1", ""}) {
    EXPECT_EQ(refused({"stream.zstd/1", name}, "").substr(0, 53),
              "load: an item was changed in a way that is not known\n")
        << name;
  }
}

TEST(TransformsTest, HowMuchAnItemMayBeFollowsFromWhatIsKnown) {
  EXPECT_GE(most_of_tensor(0), int64_t{64} << 10);
  EXPECT_LT(most_of_tensor(1000), int64_t{2} << 20);
  EXPECT_GT(most_of_tensor(int64_t{10} << 30), int64_t{10} << 30);
  EXPECT_LT(most_of_tensor(int64_t{10} << 30), int64_t{11} << 30);
  EXPECT_GT(most_of_tensor(std::numeric_limits<int64_t>::max()), 0);
  EXPECT_EQ(most_of_object(100), int64_t{1} << 30);
  EXPECT_EQ(most_of_object(int64_t{1} << 30), int64_t{16} << 30);
  EXPECT_GT(most_of_object(std::numeric_limits<int64_t>::max()), 0);
}

#ifdef SHERD_TEST_ZSTD

std::string packed(const std::string& bytes) { return encode(kZstd, bytes_of(bytes)); }

TEST(ZstdTest, ComesBackOnceAndTwice) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i);
  for (const std::string& bytes : {std::string(), std::string("a"), text}) {
    for (const auto& transforms : {kZstd, {"stream.zstd@somewhere/1.7"}, {"stream.zstd/1", "stream.zstd/1"}}) {
      EXPECT_TRUE(decode(transforms, bytes_of(encode(transforms, bytes_of(bytes))), kMost) == bytes);
    }
  }
  EXPECT_LT(packed(text).size(), text.size() / 2);
}

TEST(ZstdTest, SeveralFramesFollowOneAnother) {
  EXPECT_EQ(decode(kZstd, bytes_of(packed("one ") + packed("two")), kMost), "one two");
}

TEST(ZstdTest, DamageIsFoundAndTruncationAtEveryLength) {
  const std::string bytes = packed(std::string(1000, 'x') + "tail");
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(refused(kZstd, bytes.substr(0, size)), "nothing") << size;
  EXPECT_EQ(refused(kZstd, bytes.substr(0, bytes.size() - 1)),
            "load: a compressed item is damaged\n  zstd says: it ends too early\n"
            "  help: another checkpoint: this one is damaged");
  EXPECT_EQ(refused(kZstd, "no zstd at all"),
            "load: a compressed item is damaged\n  zstd says: Unknown frame descriptor\n"
            "  help: another checkpoint: this one is damaged");
}

TEST(ZstdTest, ABombIsRefusedBeforeItGrows) {
  const std::string bomb = packed(std::string(10000000, '\0'));
  EXPECT_LT(bomb.size(), 2000U);
  EXPECT_EQ(refused(kZstd, bomb, 9999999),
            "load: a compressed item is damaged\n  zstd says: it is larger than an item may be\n"
            "  help: another checkpoint: this one is damaged");
  EXPECT_EQ(refused(kZstd, bomb, 10000000), "nothing");
}

#else

TEST(ZstdTest, WithoutTheLibraryTheTextSaysHowToGetIt) {
  EXPECT_EQ(refused(kZstd, "x"),
            "load: an item is compressed, and this sherd was built without zstd\n  transform: stream.zstd/1\n"
            "  help: apt-get install libzstd-dev, and build sherd again");
}

#endif

}  // namespace
}  // namespace sherd::format
