#include "storage/paths.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

TEST(PathsTest, SlashesThatSayNothingGo) {
  EXPECT_EQ(clean_path("a//b///c/"), "a/b/c");
  EXPECT_EQ(clean_path("///"), "/");
  EXPECT_EQ(clean_path("/a/"), "/a");
  EXPECT_EQ(clean_path(""), ".");
}

TEST(PathsTest, APathHasAParentAndAName) {
  EXPECT_EQ(parent_of("a/b/c"), "a/b");
  EXPECT_EQ(parent_of("/c"), "/");
  EXPECT_EQ(parent_of("c"), ".");
  EXPECT_EQ(name_of("a/b/c"), "c");
  EXPECT_EQ(name_of("c"), "c");
}

TEST(PathsTest, NamesBesideAFolderAreReadBack) {
  for (const Beside what : {Beside::draft, Beside::old}) {
    const auto name = parse_beside(beside("step.tmp-1", what, "a-B_9"));
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->folder, "step.tmp-1");
    EXPECT_EQ(name->what, what);
    EXPECT_EQ(name->id, "a-B_9");
  }
}

TEST(PathsTest, OrdinaryNamesStandBesideNothing) {
  for (const char* name : {"step_10", ".tmp-1", "a.tmp-", "a.tmp", "a.tmp-x.y", "a.tmp-x y", "__0_0.distcp"}) {
    EXPECT_FALSE(parse_beside(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace sherd
