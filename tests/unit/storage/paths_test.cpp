#include "storage/paths.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
    for (const std::string& id :
         what == Beside::draft ? std::vector<std::string>{"a-B_9", new_id()} : std::vector<std::string>{new_id()}) {
      const auto name = parse_beside(beside("step.tmp-1", what, id));
      ASSERT_TRUE(name.has_value());
      EXPECT_EQ(name->folder, "step.tmp-1");
      EXPECT_EQ(name->what, what);
      EXPECT_EQ(name->id, id);
    }
  }
}

TEST(PathsTest, NewIdsAreToldFromOthers) {
  EXPECT_TRUE(is_new_id(new_id()));
  EXPECT_NE(new_id(), new_id());
  for (const char* id : {"", "1", "backup", "0123456789abcdef0123456789abcdeg", "0123456789ABCDEF0123456789ABCDEF"}) {
    EXPECT_FALSE(is_new_id(id)) << id;
  }
}

TEST(PathsTest, OrdinaryNamesStandBesideNothing) {
  for (const char* name :
       {"step_10", ".tmp-1", "a.tmp-", "a.tmp", "a.tmp-x.y", "a.tmp-x y", "__0_0.distcp", "a.old-backup", "a.old-1"}) {
    EXPECT_FALSE(parse_beside(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace sherd
