#include "layout/json_text.h"

#include <gtest/gtest.h>

namespace sherd::detail {
namespace {

TEST(JsonTextTest, Texts) {
  EXPECT_EQ(json_text(""), R"("")");
  EXPECT_EQ(json_text("w \"1\" \\"), R"("w \"1\" \\")");
  EXPECT_EQ(json_text("a\nb\x01"), R"("a\nb\u0001")");
  EXPECT_EQ(json_text("größe"), "\"größe\"");
  EXPECT_EQ(json_text("\xff!"), "\"\xef\xbf\xbd!\"");  // no UTF-8: a name of a file may be anything
}

TEST(JsonTextTest, Lists) {
  EXPECT_EQ(json_list({}), "[]");
  EXPECT_EQ(json_list({"a", "b\""}), R"(["a", "b\""])");
}

}  // namespace
}  // namespace sherd::detail
