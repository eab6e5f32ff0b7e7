// Storage in an object store: the conformance suite, through a door where every third request fails, too; stops at
// every request; and what the user is told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/storage.h"
#include "s3/ending_http.h"
#include "s3/server.h"
#include "storage/s3.h"

namespace sherd::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StorageDriver over_s3(S3Door door) {
  return {.make = [door] { return s3_storage(s3_options(door)); },
          .root = s3_root,
          .sparse = false,
          .keeps_open_files = false,
          .missing = s3_missing};
}

INSTANTIATE_STORAGE_TESTS(S3, over_s3(S3Door::plain));
INSTANTIATE_STORAGE_TESTS(FaultyS3, over_s3(S3Door::faulty));

class StorageS3Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!s3_missing().empty()) GTEST_SKIP() << s3_missing();
    storage_ = s3_storage(s3_options());
  }
  std::string at(const std::string& name) const { return *root_ + "/" + name; }

  // Small files and one of several parts, by two ranks.
  void save_checkpoint(const std::shared_ptr<Storage>& storage, const std::string& id) const {
    const auto draft = storage->draft(at("a"), id);
    const auto other = storage->draft(at("a"), id);
    write_all(*draft, "small-" + id, id);
    write_all(*other, "sharded/large-" + id, large_ + id);
    write_all(*draft, "last", id);
    draft->commit("last");
  }

  // The id of the checkpoint that is there; "" where there is none. One of which files are missing fails the test.
  std::string checkpoint() const {
    if (!storage_->exists(at("a/last"))) return "";
    const std::string id = read_all(*storage_, at("a/last"));
    EXPECT_EQ(read_all(*storage_, at("a/small-" + id)), id);
    EXPECT_EQ(read_all(*storage_, at("a/sharded/large-" + id)), large_ + id);
    return id;
  }

  std::string error_of(const std::function<void()>& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<const std::string> root_ = s3_root();
  std::shared_ptr<Storage> storage_;
  std::string large_ = pattern(9'000'000);
};

TEST_F(StorageS3Test, AProcessThatEndsAtAnyRequestLeavesTheOldOneOrTheNewOne) {
  for (const bool arrives : {false, true}) {
    std::string before = "old";
    save_checkpoint(storage_, before);
    int64_t stops = 0;
    for (bool ended = true; ended; ++stops) {
      SCOPED_TRACE(stops);
      const std::string id = "new" + std::to_string(stops);
      const auto http = std::make_shared<EndingHttp>(stops, arrives);
      try {
        save_checkpoint(s3_storage(s3_options(), http), id);
      } catch (const ProcessEnd&) {  // NOLINT(bugprone-empty-catch): that is the case to look at
      }
      ended = http->ended();
      const std::string found = checkpoint();
      ASSERT_THAT(found, AnyOf(before, id));
      ASSERT_THAT(storage_->list(at("a")), ElementsAre("last", "sharded", "small-" + found));
      // What the next process does first.
      for (const DraftName& name : storage_->drafts_in(*root_)) storage_->draft(name.folder, name.id)->discard();
      ASSERT_THAT(storage_->drafts_in(*root_), IsEmpty());
      ASSERT_EQ(checkpoint(), found);
      ASSERT_THAT(storage_->list(at("a")), ElementsAre("last", "sharded", "small-" + found));
      ASSERT_THAT(storage_->list(at("a/sharded")), ElementsAre("large-" + found));
      before = found;
    }
    EXPECT_EQ(checkpoint(), "new" + std::to_string(stops - 1));
    EXPECT_GT(stops, 20);
    storage_->remove(at("a"));
  }
}

TEST_F(StorageS3Test, NothingOfALargeFileIsSeenBeforeCommit) {
  const auto draft = storage_->draft(at("a"), "1");
  write_all(*draft, "large-1", large_);
  EXPECT_THAT(storage_->list(at("a")), IsEmpty());
  EXPECT_FALSE(storage_->exists(at("a")));
  write_all(*draft, "last", large_ + large_);
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("a/large-1")), large_);
  EXPECT_EQ(read_all(*storage_, at("a/last")), large_ + large_);
}

TEST_F(StorageS3Test, AFileThatWouldReplaceAnotherBeforeTheLastOneIsRefused) {
  EXPECT_FALSE(storage_->replaces_whole_folders());
  const auto save_fixed = [&](const std::string& id) {
    const auto draft = storage_->draft(at("a"), id);
    write_all(*draft, "fixed", id);
    write_all(*draft, "last", id);
    draft->commit("last");
  };
  save_fixed("1");
  EXPECT_EQ(error_of([&] { save_fixed("2"); }),
            "commit: a file of the draft would take the place of another before the last one does\n"
            "  file: s3://sherd-tests/" +
                at("a/fixed") +
                "\n  last: last\n"
                "  help: put the draft's id into the names of all files but the last");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "1");
  EXPECT_EQ(read_all(*storage_, at("a/fixed")), "1");
}

TEST_F(StorageS3Test, PartsComeInAnyOrderAndHolesAreZeros) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto draft = storage_->draft(at("a"), "1");
  const auto writer = draft->create("last");
  // Parts 2 and 3 by one write across their borders, the end of part 0, nothing of part 1.
  writer->write(15 * kMiB, bytes_of(large_ + large_));
  writer->write(7 * kMiB, bytes_of(large_).first(kMiB));
  writer->finish();
  draft->commit("last");
  std::string expected(15 * kMiB, '\0');
  expected.replace(7 * kMiB, kMiB, large_, 0, kMiB);
  EXPECT_EQ(read_all(*storage_, at("a/last")), expected + large_ + large_);
}

TEST_F(StorageS3Test, NamesMayHoldAnyCharacter) {
  const std::string name = "a b+c=d&e?f%g<h>'i\"#\xc3\xa9-1";
  const auto draft = storage_->draft(at("x y+z"), "1");
  write_all(*draft, name, "small");
  write_all(*draft, name + "-large", large_);
  write_all(*draft, "last", "");
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("x y+z/" + name)), "small");
  EXPECT_EQ(read_all(*storage_, at("x y+z/" + name + "-large")), large_);
  EXPECT_THAT(storage_->list(at("x y+z")), ElementsAre(name, name + "-large", "last"));
}

TEST_F(StorageS3Test, MoreFilesThanOneListingHolds) {
  S3Client client(s3_options(), make_http());
  for_each_request(1005, [&](size_t i) { client.put(at("a/" + std::to_string(10'000 + i)), {}, "1"); });
  EXPECT_EQ(storage_->list(at("a")).size(), 1005U);
  storage_->remove(at("a"));
  EXPECT_THAT(storage_->list(at("a")), IsEmpty());
}

TEST_F(StorageS3Test, WrongKeysAreNamed) {
  S3Options options = s3_options();
  options.secret_key = "wrong";
  EXPECT_EQ(error_of([&] { s3_storage(options)->list(at("a")); }),
            "list: SignatureDoesNotMatch from the test\n  file: s3://sherd-tests/\n  endpoint: " + options.endpoint +
                "\n  status: 403 SignatureDoesNotMatch\n  help: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                "AWS_REGION, and what that user may do with the bucket");
}

TEST_F(StorageS3Test, AnotherRegionSignsAsWell) {
  S3Options options = s3_options();
  options.region = "eu-central-1";
  EXPECT_FALSE(s3_storage(options)->exists(at("a")));
}

TEST_F(StorageS3Test, ABucketThatIsNotThere) {
  S3Options options = s3_options();
  options.bucket = "nobodys";
  EXPECT_THAT(error_of([&] { s3_storage(options)->list(at("a")); }),
              ::testing::AllOf(HasSubstr("list: "), HasSubstr("404 NoSuchBucket"), HasSubstr("make the bucket first")));
}

TEST_F(StorageS3Test, AStoreThatDoesNotAnswer) {
  S3Options options = s3_options(S3Door::closed);
  options.retries = 2;
  const std::string text = error_of([&] { s3_storage(options)->open(at("a/last")); });
  EXPECT_THAT(text, ::testing::StartsWith("look for: "));
  EXPECT_THAT(text,
              HasSubstr("\n  file: s3://sherd-tests/" + at("a/last") + "\n  endpoint: " + options.endpoint +
                        "\n  tried: 3 times\n  help: check S3Options::endpoint or AWS_ENDPOINT_URL, and the network"));
}

TEST_F(StorageS3Test, OptionsComeFromTheEnvironment) {
  const S3Options all = s3_options();
  ::setenv("AWS_ACCESS_KEY_ID", all.access_key.c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", all.secret_key.c_str(), 1);
  ::setenv("AWS_ENDPOINT_URL", all.endpoint.c_str(), 1);
  EXPECT_FALSE(s3_storage({.bucket = all.bucket})->exists(at("a")));
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(
      error_of([&] { s3_storage({.bucket = all.bucket}); }),
      "s3_storage: no keys\n  bucket: sherd-tests\n  help: export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...");
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_ENDPOINT_URL");
}

}  // namespace
}  // namespace sherd::testing
