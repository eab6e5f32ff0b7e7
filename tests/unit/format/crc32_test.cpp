#include <gtest/gtest.h>

#include <random>

#include "format/archive.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

/// Bit by bit, as the standard says.
uint32_t slow_crc32(std::string_view bytes, uint32_t before = 0) {
  uint32_t crc = ~before;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  return ~crc;
}

std::string random_bytes(size_t size) {
  std::mt19937 random(1);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(Crc32Test, TheCheckValueOfTheStandard) { EXPECT_EQ(crc32(test::bytes_of("123456789")), 0xCBF43926U); }

TEST(Crc32Test, EveryLengthAndAlignmentAgreesWithTheSlowWay) {
  const std::string bytes = random_bytes(3000);
  for (size_t from = 0; from < 17; ++from) {
    for (size_t size = 0; from + size <= bytes.size(); size += size < 300 ? 1 : 37) {
      const std::string_view part = std::string_view(bytes).substr(from, size);
      ASSERT_EQ(crc32(test::bytes_of(part), 7), slow_crc32(part, 7)) << from << " " << size;
    }
  }
}

TEST(Crc32Test, TheSumOfTwoPartsIsThatOfTheWhole) {
  const std::string bytes = random_bytes(100000);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4096}, size_t{99999}, size_t{100000}}) {
    const std::string_view first = std::string_view(bytes).substr(0, cut);
    const std::string_view rest = std::string_view(bytes).substr(cut);
    EXPECT_EQ(
        crc32_of_both(crc32(test::bytes_of(first)), crc32(test::bytes_of(rest)), static_cast<int64_t>(rest.size())),
        crc32(test::bytes_of(bytes)));
    EXPECT_EQ(crc32(test::bytes_of(rest), crc32(test::bytes_of(first))), crc32(test::bytes_of(bytes)));
  }
}

}  // namespace
}  // namespace sherd::format
