#include <gtest/gtest.h>

#include "format/pickle.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using namespace std::string_literals;
using test::bytes_of;

Value read(const std::string& bytes) { return unpickle(bytes_of(bytes)); }

TEST(UnpickleTest, Protocol0IsLinesOfText) {
  EXPECT_EQ(read("(lp0\nI1\naI01\naF-2.5\naVgr\\u00fc\xdfn\np1\naS'it\\'s \\x41\\102'\nag1\na."),
            Value(List{1, true, -2.5, "grüßn", "it's AB", "grüßn"}));
  EXPECT_EQ(read("(dp0\nVa\nI1\nsVb\n(I2\nI3\ntp1\ns."), Value(Dict{{{"a", 1}, {"b", Tuple{{2, 3}}}}}));
}

TEST(UnpickleTest, IntsOfAllWidthsKeepTheirSign) {
  EXPECT_EQ(read("(K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x05\0\0\0\x80\0\x8a\0\x8a\x01\x80t."s),
            Value(Tuple{{255, 65535, -1, int64_t{1} << 31, 0, -128}}));
}

TEST(UnpickleTest, AnIntBeyond64BitsKeepsItsBytes) {
  EXPECT_EQ(read("\x8a\x0a\0\0\0\0\0\0\0\0\x40\0."s), Value(BigInt{"\0\0\0\0\0\0\0\0\x40"s}));
  EXPECT_EQ(read("L-1\n."), Value(-1));
  EXPECT_EQ(read("L9223372036854775808L\n."), Value(BigInt{"\0\0\0\0\0\0\0\x80\0"s}));
  EXPECT_EQ(read("L-9223372036854775809L\n."), Value(BigInt{"\xff\xff\xff\xff\xff\xff\xff\x7f\xff"s}));
}

TEST(UnpickleTest, AnIntBeyond64BitsPrintsInDecimal) {
  for (const std::string digits : {"9223372036854775808", "-9223372036854775809", "1180591620717411303424",
                                   "-340282366920938463463374607431768211456"}) {
    EXPECT_EQ(to_string(read("L" + digits + "L\n.")), digits);
  }
}

TEST(UnpickleTest, WhatWasOneObjectStaysOne) {
  const Value value = read("]q\0h\0\x86."s);
  const auto* tuple = value.as<Tuple>();
  ASSERT_NE(tuple, nullptr);
  ASSERT_NE(tuple->items[0].as<List>(), nullptr);
  EXPECT_EQ(tuple->items[0].as<List>(), tuple->items[1].as<List>());
}

TEST(UnpickleTest, AnOrderedDictKeepsItsOrderAndWhatLiesBesideIt) {
  const Value value = read("ccollections\nOrderedDict\n)R(Vb\nK\x01Va\nK\x02u}V_metadata\nNsb."s);
  const auto* dict = value.as<Dict>();
  ASSERT_NE(dict, nullptr);
  EXPECT_TRUE(dict->ordered);
  EXPECT_EQ(to_string(value), "OrderedDict({'b': 1, 'a': 2})");
  ASSERT_NE(dict->state, nullptr);
  EXPECT_EQ(*dict->state, Value(Dict{{{"_metadata", None{}}}}));
  EXPECT_EQ(unpickle(bytes_of(pickle(value))), value);
}

TEST(UnpickleTest, AnUnknownClassIsRememberedAndNeverCalled) {
  const Value value = read("cdatetime\ndate\n(U\x04\x07\xe8\x01\x02tR."s);
  EXPECT_EQ(value,
            Value(Object{.type = {"datetime", "date"}, .called = true, .arguments = {Bytes{"\x07\xe8\x01\x02"}}}));
}

TEST(UnpickleTest, APersistentIdThatIsNoStorageIsKept) {
  const Value value = read("(Vgroup\nK\x07tQ."s);
  EXPECT_EQ(value, Value(Object{.type = {"", "persistent_id"}, .arguments = {Tuple{{"group", 7}}}}));
  EXPECT_EQ(unpickle(bytes_of(pickle(value))), value);
}

TEST(UnpickleTest, ATensorIsItsStorageAndWhereItLiesThere) {
  const std::string bytes =
      "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nHalfStorage\nV3\nVcpu\nK\x64tQK\x0a("
      "K\x02K\x03tK\x01K\x02\x86\x89Nt"
      "R."s;
  TensorRef tensor;
  tensor.dtype = DType::f16;
  tensor.storage = "3";
  tensor.storage_bytes = 200;
  tensor.offset = 10;
  tensor.sizes = {2, 3};
  tensor.strides = {1, 2};
  EXPECT_EQ(read(bytes), Value(tensor));
  EXPECT_EQ(unpickle(bytes_of(pickle(tensor))), Value(tensor));
}

TEST(UnpickleTest, BytesOfProtocol2ComeAsLatin1) {
  EXPECT_EQ(read("c_codecs\nencode\n(X\x03\0\0\0a\xc3\xbfX\x06\0\0\0latin1tR."s), Value(Bytes{"a\xff"}));
  EXPECT_EQ(read("c__builtin__\nbytes\n)R."s), Value(Bytes{}));
  EXPECT_EQ(read("\x96\x02\0\0\0\0\0\0\0hi."s), Value(Bytes{.data = "hi", .array = true}));
}

}  // namespace
}  // namespace sherd::format
