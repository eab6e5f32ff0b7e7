// How much more a value is when each of its parts is made as often as it stands there.

#include "format/unfolded.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/archive.h"
#include "format/object_json.h"
#include "format/saved.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

enum class Kind { tuple, list, dict, keys, state, object };

// Twice the one below, `levels` times.
Value doubled(Kind kind, int levels) {
  Value value = Tuple{{1, 2}};
  for (int i = 0; i < levels; ++i) {
    switch (kind) {
      case Kind::tuple:
        value = Tuple{{value, value}};
        break;
      case Kind::list:
        value = List{value, value};
        break;
      case Kind::dict:
        value = Dict{.items = {{"a", value}, {"b", value}}};
        break;
      case Kind::keys:
        value = Dict{.items = {{value, value}}};
        break;
      case Kind::state:
        value = Dict{.items = {{"a", value}}, .ordered = true, .state = std::make_shared<Value>(value)};
        break;
      case Kind::object:
        value = Object{.type = {"a", "B"}, .arguments = {value}, .state = std::make_shared<Value>(value)};
        break;
    }
  }
  return value;
}

TensorRef tensor(int64_t elements, int64_t stride, int64_t stored) {
  TensorRef ref;
  ref.storage = "0";
  ref.storage_bytes = stored;
  ref.sizes = {elements};
  ref.strides = {stride};
  return ref;
}

TEST(Unfolded, WhatStandsTwiceAtEveryLevelIsTooMuch) {
  for (const Kind kind : {Kind::tuple, Kind::list, Kind::dict, Kind::keys, Kind::state, Kind::object}) {
    EXPECT_FALSE(unfolds_too_far(doubled(kind, 12))) << static_cast<int>(kind);
    for (const int levels : {30, 64, 900}) {  // beyond 63 bits, too
      EXPECT_TRUE(unfolds_too_far(doubled(kind, levels))) << static_cast<int>(kind) << " " << levels;
    }
  }
  EXPECT_EQ(test::refusal([] { check_unfolded(doubled(Kind::tuple, 40), "load", "x"); }),
            "load: the value unfolds into too many parts\n  in: x\n"
            "  most: 1073741824 bytes more than as it is saved\n"
            "  help: where the file is trusted, torch.load(path), and a value that has less twice");
}

TEST(Unfolded, WhatStandsOnceIsNeverTooMuch) {
  List list;
  for (int64_t i = 0; i < 100000; ++i) list.push_back(Tuple{{i, std::string(1000, 'x')}});
  EXPECT_FALSE(unfolds_too_far(list));
}

TEST(Unfolded, TensorsMayHaveNoMoreElementsThanAreStored) {
  constexpr int64_t kMany = int64_t{1} << 29;
  EXPECT_FALSE(unfolds_too_far(tensor(kMany, 1, 4 * kMany)));
  EXPECT_FALSE(unfolds_too_far(Tuple{{tensor(kMany / 2, 1, 4 * kMany), tensor(kMany / 2, 1, 4 * kMany)}}));
  EXPECT_TRUE(unfolds_too_far(tensor(kMany, 0, 4)));
  const Value one = tensor(kMany / 8, 0, 4);
  EXPECT_FALSE(unfolds_too_far(Tuple{{one, one}}));
  EXPECT_TRUE(unfolds_too_far(Tuple{List(9, one)}));
  EXPECT_EQ(test::refusal([&] {
              check_unfolded(Tuple{{1, tensor(kMany, 0, 4)}}, "load", "x");
            }),
            "load: a tensor is much larger than what is stored of it\n  in: x\n  tensor: tensor f32[536870912]");
}

TEST(Unfolded, JsonHasOfTooMuchItsBytes) {
  const std::string archive = archive_of(doubled(Kind::tuple, 40));
  const auto json = object_to_json(archive, "x");
  ASSERT_TRUE(json.contains("$torch.save"));
  EXPECT_EQ(object_from_json(json, "x"), archive);
}

}  // namespace
}  // namespace sherd::format
