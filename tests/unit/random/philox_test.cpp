#include "random/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "random/count_numbers.h"
#include "random/loops.h"
#include "random/permutation.h"

namespace sherd::detail {
namespace {

uint64_t joined(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

// The known answers of Random123 (kat_vectors, philox4x32-10): counter, key, result.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  struct Answer {
    std::vector<uint32_t> counter, key, words;
  };
  const std::vector<Answer> answers = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Answer& known : answers) {
    const PhiloxBlock block = philox(joined(known.key[0], known.key[1]), joined(known.counter[2], known.counter[3]),
                                     joined(known.counter[0], known.counter[1]));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(block.words[i], known.words[i]) << i;
  }
}

TEST(PhiloxTest, LogarithmsAndAnglesAreRightToTheLastPlaces) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t word = random();
    const double u = above_zero(word);
    ASSERT_NEAR(logarithm(u), std::log(u), 4e-16 * std::max(1.0, std::abs(std::log(u))));
    const float f = above_zero(static_cast<uint32_t>(word));
    ASSERT_NEAR(logarithm(f), std::log(f), 3e-7 * std::max(1.0F, std::abs(std::log(f))));
    const double turn = unit(word);
    ASSERT_NEAR(on_circle(turn).first, std::cos(turn * 2 * M_PI), 1e-15);
    ASSERT_NEAR(on_circle(turn).second, std::sin(turn * 2 * M_PI), 1e-15);
    const float quick = unit(static_cast<uint32_t>(word), 24);
    ASSERT_NEAR(on_circle(quick).first, std::cos(double{quick} * 2 * M_PI), 2e-7);
    const double x = 1400 * turn - 700;
    ASSERT_NEAR(exponential_of(x) / std::exp(x), 1, 1e-15) << x;
  }
  EXPECT_EQ(exponential_of(1000), std::numeric_limits<double>::infinity());
  EXPECT_EQ(exponential_of(-1000), 0);
  for (double k : {0, 1, 5, 9, 10, 50, 1000}) ASSERT_NEAR(log_factorial(k), std::lgamma(k + 1), 1e-11 * (k + 1)) << k;
}

// The same bits from every loop, wherever a stretch begins.
TEST(RandomLoopsTest, VectorLoopsGiveTheSameBits) {
  const RandomLoops* wide = avx2_random_loops();
  if (wide == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  const std::pair<Stored, size_t> types[] = {{Stored::f32, 4},  {Stored::f64, 8}, {Stored::f16, 2}, {Stored::bf16, 2},
                                             {Stored::u8, 1},   {Stored::i8, 1},  {Stored::i16, 2}, {Stored::i32, 4},
                                             {Stored::i64, 8},  {Stored::u16, 2}, {Stored::u32, 4}, {Stored::u64, 8},
                                             {Stored::truth, 1}};
  for (const auto& [type, size] : types) {
    for (int kind = 0; kind <= static_cast<int>(Distribution::bernoulli); ++kind) {
      const Draw draw{.distribution = static_cast<Distribution>(kind),
                      .a = 0.3,
                      .b = 1.7,
                      .limit = uniform_limit(0.3, 1.7, type),
                      .low = -5,
                      .range = 100,
                      .seed = 0x123456789abcdef0,
                      .offset = (uint64_t{1} << 40) + 7};
      for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, (uint64_t{1} << 34) - 3}) {
        for (const size_t count : {1, 2, 5, 63, 1000}) {
          std::vector<char> a(count * size + 8, 'x');
          std::vector<char> b = a;
          wide->fill(draw, type, a.data(), first, count);
          plain_random_loops().fill(draw, type, b.data(), first, count);
          ASSERT_EQ(a, b) << "type " << static_cast<int>(type) << ", distribution " << kind << ", first " << first;
        }
      }
    }
  }
  for (const auto& [type, size] : {std::pair<Stored, size_t>{Stored::f32, 4}, {Stored::f64, 8}, {Stored::f16, 2}}) {
    std::vector<char> in(1000 * size);
    Draw numbers{.distribution = Distribution::normal, .a = 0, .b = 1, .seed = 3};
    plain_random_loops().fill(numbers, type, in.data(), 0, 1000);
    for (const double p : {0.0, 0.1, 0.5, 1.0}) {
      std::vector<char> a(in.size()), b(in.size());
      bool kept_a[1000], kept_b[1000];  // NOLINT(modernize-avoid-c-arrays)
      wide->drop({p, 5, 6}, type, in.data(), a.data(), kept_a, 3, 1000);
      plain_random_loops().drop({p, 5, 6}, type, in.data(), b.data(), kept_b, 3, 1000);
      EXPECT_EQ(a, b);
      EXPECT_EQ(0, std::memcmp(kept_a, kept_b, sizeof kept_a));
    }
  }
}

TEST(RandomLoopsTest, TheEndOfARangeIsTheNumberBeforeIt) {
  EXPECT_EQ(uniform_limit(0, 1, Stored::f16), 1 - 0x1p-11);
  EXPECT_EQ(uniform_limit(0, 1, Stored::bf16), 1 - 0x1p-8);
  EXPECT_EQ(uniform_limit(0, 1, Stored::f32), 1 - 0x1p-24);
  EXPECT_EQ(uniform_limit(0, 1, Stored::f64), 1 - 0x1p-53);
  EXPECT_EQ(uniform_limit(-2, -1, Stored::bf16), -1 - 0x1p-7);
  EXPECT_LT(uniform_limit(-1, 0, Stored::f16), 0);
  EXPECT_EQ(uniform_limit(0, 1.00001, Stored::bf16), 1);  // what is nearest lies below already
  EXPECT_EQ(uniform_limit(3, 3, Stored::f32), 3);
}

TEST(RandomLoopsTest, AStretchIsPartOfTheWhole) {
  std::vector<float> all(999);
  const Draw draw{.distribution = Distribution::normal, .seed = 1, .offset = 2};
  random_loops().fill(draw, Stored::f32, all.data(), 0, all.size());
  for (size_t first : {0, 1, 2, 3, 250, 997}) {
    for (size_t count = 1; first + count <= all.size() && count < 300; count += 37) {
      std::vector<float> part(count);
      random_loops().fill(draw, Stored::f32, part.data(), first, count);
      EXPECT_EQ(part, std::vector<float>(all.begin() + static_cast<int64_t>(first),
                                         all.begin() + static_cast<int64_t>(first + count)));
    }
  }
}

TEST(PermutationTest, HasEveryRowOnce) {
  for (uint64_t n : {0, 1, 2, 3, 10, 1024, 1025, 5000, 100'003}) {
    const Permutation permutation(n, 7, 11);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t row = permutation(i);
      ASSERT_LT(row, n);
      ASSERT_FALSE(seen[row]);
      seen[row] = true;
    }
  }
}

TEST(PermutationTest, SmallOnesAreAllEquallyLikely) {
  std::vector<int> counts(24);
  constexpr int kDraws = 48'000;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Permutation permutation(4, 5, draw);
    std::vector<uint64_t> rows{permutation(0), permutation(1), permutation(2), permutation(3)};
    int number = 0;
    for (size_t i = 0; i < 4; ++i) {
      int smaller = 0;
      for (size_t j = i + 1; j < 4; ++j) smaller += rows[j] < rows[i] ? 1 : 0;
      number = number * (4 - static_cast<int>(i)) + smaller;
    }
    ++counts[static_cast<size_t>(number)];
  }
  double chi = 0;
  for (const int count : counts) chi += std::pow(count - kDraws / 24.0, 2) / (kDraws / 24.0);
  EXPECT_LT(chi, 52.6);  // one in 2,500 of 23 degrees of freedom
}

// A large one is no shift or rotation in disguise: fixed points, ascents, and where a row goes.
TEST(PermutationTest, LargeOnesLookRandom) {
  constexpr uint64_t kRows = 20'000;
  int fixed = 0;
  double ascents = 0;
  std::vector<int> first_goes_to(10);
  for (uint64_t draw = 0; draw < 400; ++draw) {
    const Permutation permutation(kRows, 5, draw);
    ++first_goes_to[permutation(0) * 10 / kRows];
    for (uint64_t i = 0; i + 1 < kRows; i += 37) {
      fixed += permutation(i) == i ? 1 : 0;
      ascents += permutation(i) < permutation(i + 1) ? 1 : 0;
    }
  }
  const double looked_at = 400.0 * (kRows / 37.0);
  EXPECT_LT(fixed, 35);  // 10.8 expected
  EXPECT_NEAR(ascents / looked_at, 0.5, 0.006);
  double chi = 0;
  for (const int count : first_goes_to) chi += std::pow(count - 40.0, 2) / 40.0;
  EXPECT_LT(chi, 31);
}

}  // namespace
}  // namespace sherd::detail
