// The fuzzer's claim on mutations of valid texts, for every test run and every compiler.

#include <gtest/gtest.h>

#include <random>

#include "fuzz/parse_check.h"

namespace sherd {
namespace {

const std::string kTexts[] = {
    "R",
    "S(0)",
    "S(-1)",
    "S(0, split=2)",
    "S(0, cuts=0:3:10)",
    "P(sum)",
    "P(bxor)",
    "()",
    "(S(0), R, P(sum))",
    "[]",
    "[dp=2, tp=4]",
    "[2, 4]",
    "[dp=2, tp=2]{0, 2, 4-5}",
    "[]{5}",
    "[0:4, 2:6]",
    "[-3:4]",
    "[4, 6]",
    "[-1, 0]",
    "f32[4096@dp, 1024@tp]",
    "f32[64, 16] P(sum)@tp",
    "f32[64@dp@tp]",
    "i64[10@dp(cuts=0:3:10), 4@tp(split=2)]",
    "f32[64@0]",
    "bf16[10@0(cuts=0:1:10)@1(cuts=0:1:1:1:5:6:10)]",
    "f32[] P(sum)@0 P(avg)@1",
    "f32[8@dp(split=9223372036854775807)@tp]",
    "[9223372036854775807]",
    "[2]{9223372036854775806-9223372036854775807}",
};
const std::string kPieces[] = {"(",
                               ")",
                               "[",
                               "]",
                               "{",
                               "}",
                               "@",
                               ":",
                               ",",
                               "=",
                               "-",
                               " ",
                               "0",
                               "1",
                               "9",
                               "S",
                               "R",
                               "P",
                               "split",
                               "cuts",
                               "dp",
                               "tp",
                               "sum",
                               "9223372036854775808",
                               std::string(1, '\0'),
                               "\xff"};

std::string mutated(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::string text = kTexts[below(std::size(kTexts))];
  for (size_t steps = below(4); steps > 0; --steps) {
    const size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 1:
        text.erase(at, 1 + below(3));
        break;
      case 2:
        text.replace(at, std::min<size_t>(1, text.size() - at), kPieces[below(std::size(kPieces))]);
        break;
      default:
        text.insert(at, kTexts[below(std::size(kTexts))]);
        break;
    }
  }
  return text;
}

TEST(ParseMutation, EveryTextParsesAndPrintsBackOrIsRefused) {
  std::mt19937_64 random(1);
  int parsed = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::string text = mutated(random);
    SCOPED_TRACE(text);
    ASSERT_NO_THROW(parsed += testing::check_parsers(text) > 0);
  }
  EXPECT_GT(parsed, 8000);
  EXPECT_LT(parsed, 28000);
}

TEST(ParseMutation, EveryPrefixOfATextIsTakenOrRefused) {
  for (const std::string& text : kTexts)
    for (size_t size = 0; size < text.size(); ++size) ASSERT_NO_THROW(testing::check_parsers(text.substr(0, size)));
}

TEST(ParseMutation, ALongTextIsRefusedQuickly) {
  const std::string deep(1 << 20, '(');
  ASSERT_NO_THROW(testing::check_parsers(deep));
  std::string many = "[4";
  for (int i = 0; i < 100000; ++i) many += ", 4";
  EXPECT_NO_THROW(testing::check_parsers(many + "]"));
}

}  // namespace
}  // namespace sherd
