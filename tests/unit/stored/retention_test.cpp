#include "stored/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/manifest.h"
#include "stored/base_blocks.h"
#include "unit/stored/stored_files.h"

namespace sherd::stored::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RetentionTest : public ::testing::Test {
 protected:
  void put_step(int64_t step, const std::vector<int64_t>& bases = {}) {
    format::Manifest manifest{.id = step_name(step), .bases = {}, .base_ids = {}, .stored_files = {}, .files = {}};
    for (const int64_t base : bases) {
      manifest.bases.push_back(step_name(base));
      manifest.base_ids.push_back(step_name(base));
    }
    put(*storage_, "run/" + step_name(step), {{format::kManifestName, format::encode_manifest(manifest)}});
  }
  void put_damaged(int64_t step) { put(*storage_, "run/" + step_name(step), {{format::kManifestName, "no manifest"}}); }
  std::vector<int64_t> removed(const Retention& retention) const {
    return steps_to_remove(*storage_, "run", retention);
  }

  std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(RetentionTest, TheNewestStayAndMultiplesAndWhatTheyUse) {
  for (const int64_t step : {5, 10, 15, 20, 25}) put_step(step);
  put_step(30, {15});
  EXPECT_THAT(removed({.keep_last = 1}), ElementsAre(5, 10, 20, 25));
  EXPECT_THAT(removed({.keep_last = 2, .keep_every = 10}), ElementsAre(5));
  EXPECT_THAT(removed({.keep_last = 9}), IsEmpty());
  // What is used stays for its blocks: what it would need itself does not.
  put_step(15, {5});
  EXPECT_THAT(removed({.keep_last = 1}), ElementsAre(5, 10, 20, 25));
}

TEST_F(RetentionTest, TheLastSavedIsTheNewest) {
  for (const int64_t step : {10, 15, 17, 20, 30}) put_step(step);
  EXPECT_THAT(removed({.keep_last = 2, .saved = {15}}), ElementsAre(10, 17, 20));
  EXPECT_THAT(removed({.keep_last = 2, .saved = {15, 17}}), ElementsAre(10, 20, 30));
  EXPECT_THAT(removed({.keep_last = 1, .saved = {17, 15}}), ElementsAre(10, 17, 20, 30));
  EXPECT_THAT(removed({.keep_last = 1, .saved = {99}}), ElementsAre(10, 15, 17, 20));  // gone meanwhile
}

TEST_F(RetentionTest, DamagedOnesDoNotCountAndGoWhenTheyAreOlder) {
  for (const int64_t step : {10, 20, 30}) put_step(step);
  EXPECT_THAT(removed({.keep_last = 1, .damaged = {30}}), ElementsAre(10));
  EXPECT_THAT(removed({.keep_last = 1, .damaged = {20}}), ElementsAre(10, 20));
  EXPECT_THAT(removed({.keep_last = 2, .damaged = {20}}), IsEmpty());
  EXPECT_THAT(removed({.keep_last = 1, .saved = {10}, .damaged = {20}}), ElementsAre(30));
  EXPECT_THAT(removed({.keep_last = 1, .damaged = {10, 20, 30}}), IsEmpty());
  put_damaged(30);
  put_step(20, {10});
  EXPECT_THAT(removed({.keep_last = 1}), IsEmpty());
  EXPECT_FALSE(bases_of(*storage_, "run/step-30"));
  EXPECT_FALSE(find_manifest(*storage_, "run/step-30"));
  EXPECT_TRUE(find_manifest(*storage_, "run/step-20"));
  EXPECT_THAT(*bases_of(*storage_, "run/step-20"), ElementsAre("run/step-10"));
  EXPECT_THAT(*bases_of(*storage_, "run/step-40"), IsEmpty());
}

TEST(DropUnusedTest, WhatNoBlockRefersToGoes) {
  const auto file = [](std::string name, std::vector<format::BlockPlace> places) {
    const std::vector<format::Digest> digests(places.size());
    return format::ManifestFile{std::move(name), format::kBlock * static_cast<int64_t>(places.size()), digests,
                                std::move(places)};
  };
  format::Manifest manifest{
      .id = "id",
      .bases = {"a", "b", "c"},
      .base_ids = {"1", "2", "3"},
      .stored_files = {"one", "two", "one", "unused", "own"},
      .files = {file("x", {{2, 2, 10}, {0, 4, 20}, {3, 0, 30}, {3, 1, 40}}), file("y", {{2, 1, 50}})}};
  drop_unused(manifest);
  EXPECT_THAT(manifest.bases, ElementsAre("b", "c"));
  EXPECT_THAT(manifest.base_ids, ElementsAre("2", "3"));
  EXPECT_THAT(manifest.stored_files, ElementsAre("one", "two", "own"));
  using Place = format::BlockPlace;
  EXPECT_THAT(manifest.files[0].places,
              ElementsAre(Place{1, 0, 10}, Place{0, 2, 20}, Place{2, 0, 30}, Place{2, 1, 40}));
  EXPECT_THAT(manifest.files[1].places, ElementsAre(Place{1, 1, 50}));
}

}  // namespace
}  // namespace sherd::stored::test
