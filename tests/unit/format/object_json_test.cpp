// Objects as JSON, and back.

#include "format/object_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "format/saved.h"

namespace sherd::format {
namespace {

Value value_of(const std::string& archive) {
  const MemorySource source(std::as_bytes(std::span(archive)));
  return read_saved(source, "test").value;
}

TEST(ObjectJson, EveryKindComesBack) {
  Dict numbers;
  numbers.items = {{Value(1), Value("one")}, {Value("two"), Value(2.5)}};
  Dict ordered;
  ordered.ordered = true;
  ordered.items = {{Value("b"), Value(true)}, {Value("a"), Value(None{})}};
  Dict plain;
  plain.items = {{Value("z"), Value(Tuple{{Value(1), Value("x")}})}, {Value("a"), Value(List{Value(-3), Value(0.1)})}};
  for (const Value& value : {Value(None{}), Value(false), Value(int64_t{1} << 62), Value(-0.0), Value(1e300),
                             Value("text \"\xc3\xa4\""), Value(Bytes{std::string("\0\xff\x80", 3)}), Value(numbers),
                             Value(ordered), Value(plain), Value(HUGE_VAL), Value(Object{.type = {"a", "B"}})}) {
    const auto json = object_to_json(archive_of(value), "test");
    EXPECT_EQ(value_of(object_from_json(nlohmann::ordered_json::parse(json.dump()), "test")), value) << json.dump();
  }
  const auto nan = object_from_json(object_to_json(archive_of(std::nan("")), "test"), "test");
  EXPECT_TRUE(std::isnan(*value_of(nan).as<double>()));
}

TEST(ObjectJson, PlainValuesArePlainJson) {
  Dict dict;
  dict.items = {{Value("step"), Value(4000)}, {Value("name"), Value("gpt")}, {Value("lr"), Value(0.5)}};
  EXPECT_EQ(object_to_json(archive_of(dict), "test").dump(), R"({"step":4000,"name":"gpt","lr":0.5})");
}

TEST(ObjectJson, ManyKeysAreWrittenWithoutLookingBack) {
  Dict dict;
  for (int64_t i = 0; i < 300000; ++i) dict.items.emplace_back(std::to_string(i), i);
  const auto json = object_to_json(archive_of(dict), "test");
  EXPECT_EQ(json.size(), 300000U);
  EXPECT_EQ(value_of(object_from_json(json, "test")), Value(dict));
}

TEST(ObjectJson, WhatSherdDoesNotWriteIsRefused) {
  for (const char* text : {R"({"$tuple": 3})", R"({"$what": []})", R"({"$float": "1"})", R"({"$dict": [1]})",
                           R"({"$bytes": "abc"})", R"({"$bytes": "ab!="})", "18446744073709551615",
                           R"({"$dict": [["a", 1], ["a", 2]]})", R"({"$ordered": [[1, 1], [2, 1], [1, 1]]})"}) {
    EXPECT_THROW(object_from_json(nlohmann::ordered_json::parse(text), "test"), std::invalid_argument) << text;
  }
}

TEST(ObjectJson, Base64) {
  const std::string all = "any carnal pleas";
  for (size_t n = 0; n <= all.size(); ++n) EXPECT_EQ(from_base64(to_base64(all.substr(0, n))), all.substr(0, n));
  EXPECT_EQ(to_base64("any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
}

}  // namespace
}  // namespace sherd::format
