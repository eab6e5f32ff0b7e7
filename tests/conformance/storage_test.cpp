// What every storage driver does.

#include "conformance/storage.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

namespace sherd::testing {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_P(StorageTest, WhatIsCommittedIsThere) {
  save(*storage_, at("a"), "1", "hello");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "hello");
  EXPECT_EQ(read_all(*storage_, at("a/data-1")).size(), 50U);
  EXPECT_TRUE(storage_->exists(at("a")));
  EXPECT_TRUE(storage_->exists(at("a/last")));
  EXPECT_FALSE(storage_->exists(at("a/other")));
  EXPECT_FALSE(storage_->exists(at("b")));
  EXPECT_EQ(storage_->open(at("a/last"))->size(), 5);
}

TEST_P(StorageTest, NothingIsSeenBeforeCommit) {
  const auto draft = storage_->draft(at("a"), "1");
  write_all(*draft, "last", "text");
  EXPECT_FALSE(storage_->exists(at("a/last")));
  EXPECT_THAT(storage_->list(at("a")), IsEmpty());
  EXPECT_THROW(storage_->open(at("a/last")), std::runtime_error);
  draft->commit("last");
  EXPECT_TRUE(storage_->exists(at("a/last")));
  EXPECT_THAT(storage_->drafts(at("a")), IsEmpty());
}

TEST_P(StorageTest, AnotherProcessSeesTheSame) {
  save(*storage_, at("a"), "1", "hello");
  const auto other = GetParam().make();
  EXPECT_EQ(read_all(*other, at("a/last")), "hello");
  other->remove(at("a"));
  EXPECT_FALSE(storage_->exists(at("a")));
}

TEST_P(StorageTest, AFullPathFindsTheSameAndIsOne) {
  save(*storage_, at("a/b"), "1", "hello");
  const std::string full = storage_->full_path(at("a/b"));
  EXPECT_EQ(read_all(*storage_, full + "/last"), "hello");
  EXPECT_EQ(storage_->full_path(full), full);
  EXPECT_EQ(storage_->full_path(at("a//b/")), full);
  EXPECT_NE(storage_->full_path(at("a/c")), full);
}

TEST_P(StorageTest, ARangeIsRead) {
  const std::string text = pattern(100'000);
  const auto draft = storage_->draft(at("a"), "1");
  write_all(*draft, "last", text);
  draft->commit("last");
  const auto file = storage_->open(at("a/last"));
  std::string one(10, '?');
  std::string two(7777, '?');
  std::string none;
  const std::vector<ReadRequest> requests = {{99'990, bytes_of(one)}, {1234, bytes_of(two)}, {50, bytes_of(none)}};
  file->read(requests);
  EXPECT_EQ(one, text.substr(99'990));
  EXPECT_EQ(two, text.substr(1234, 7777));
}

TEST_P(StorageTest, AReadBeyondTheEndNamesTheFileAndTheBytes) {
  save(*storage_, at("a"), "1", "hello");
  const auto file = storage_->open(at("a/last"));
  std::string text(4, '?');
  const ReadRequest request{3, bytes_of(text)};
  try {
    file->read({&request, 1});
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("read: the file is shorter than what is to be read from it"));
    EXPECT_THAT(error.what(), HasSubstr("a/last"));
    EXPECT_THAT(error.what(), HasSubstr("bytes: [3, 7)"));
    EXPECT_THAT(error.what(), HasSubstr("size: 5"));
  }
}

TEST_P(StorageTest, AMissingFileIsNamed) {
  try {
    storage_->open(at("a/nothing"));
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no such file"));
    EXPECT_THAT(error.what(), HasSubstr("a/nothing"));
  }
}

TEST_P(StorageTest, WritesComeInAnyOrder) {
  const std::string text = pattern(3'000'000);
  std::vector<size_t> pieces(30);
  std::iota(pieces.begin(), pieces.end(), 0);
  std::shuffle(pieces.begin(), pieces.end(), std::mt19937(5));  // NOLINT: the same order every time
  const auto draft = storage_->draft(at("a"), "1");
  for (const int64_t size : {int64_t{0}, static_cast<int64_t>(text.size())}) {
    const auto writer = draft->create("last", size);
    for (const size_t i : pieces) {
      writer->write(static_cast<int64_t>(i * 100'000), bytes_of(text).subspan(i * 100'000, 100'000));
    }
    writer->finish();
  }
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("a/last")), text);
}

TEST_P(StorageTest, BytesNeverWrittenAreZeros) {
  const auto draft = storage_->draft(at("a"), "1");
  const auto sized = draft->create("sized-1", 100);
  sized->write(10, bytes_of(std::string("xy")));
  sized->finish();
  const auto open = draft->create("open-1");
  open->write(10, bytes_of(std::string("xy")));
  open->finish();
  const auto more = draft->create("more-1", 5);
  more->write(10, bytes_of(std::string("xy")));
  more->finish();
  write_all(*draft, "last", "");
  draft->commit("last");
  const std::string start = std::string(10, '\0') + "xy";
  EXPECT_EQ(read_all(*storage_, at("a/sized-1")), start + std::string(88, '\0'));
  EXPECT_EQ(read_all(*storage_, at("a/open-1")), start);
  EXPECT_EQ(read_all(*storage_, at("a/more-1")), start);
}

TEST_P(StorageTest, FilesMayBeEmpty) {
  const auto draft = storage_->draft(at("a"), "1");
  draft->create("empty-1")->finish();
  write_all(*draft, "last", "");
  draft->commit("last");
  EXPECT_THAT(storage_->list(at("a")), ElementsAre("empty-1", "last"));
  EXPECT_EQ(storage_->open(at("a/empty-1"))->size(), 0);
  EXPECT_EQ(read_all(*storage_, at("a/last")), "");
}

TEST_P(StorageTest, ADraftTakesThePlaceOfWhatWasThere) {
  save(*storage_, at("a"), "1", "old");
  save(*storage_, at("a"), "2", "new");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "new");
  EXPECT_THAT(storage_->list(at("a")), ElementsAre("data-2", "last"));
  EXPECT_THAT(storage_->list(*root_), ElementsAre("a"));
  EXPECT_THAT(storage_->drafts(at("a")), IsEmpty());
}

TEST_P(StorageTest, ADraftMayBeOneFile) {
  const std::string text = pattern(20'000'000);
  for (const std::string& content : {std::string("old"), text}) {
    const auto draft = storage_->draft(at("a.pt"), "1");
    write_all(*draft, Draft::kItself, content);
    EXPECT_TRUE(draft->has(Draft::kItself));
    draft->commit(Draft::kItself);
    EXPECT_EQ(read_all(*storage_, at("a.pt")), content);
    EXPECT_THAT(storage_->list(*root_), ElementsAre("a.pt"));
    EXPECT_THAT(storage_->drafts(at("a.pt")), IsEmpty());
  }
  storage_->draft(at("a.pt"), "2")->create(Draft::kItself)->write(0, bytes_of(std::string("half")));
  storage_->draft(at("a.pt"), "2")->discard();
  EXPECT_EQ(read_all(*storage_, at("a.pt")), text);
  storage_->remove(at("a.pt"));
  EXPECT_FALSE(storage_->exists(at("a.pt")));
}

TEST_P(StorageTest, AFileTakesThePlaceOfAFolderAndTheReverse) {
  save(*storage_, at("a"), "1", "folder");
  const auto draft = storage_->draft(at("a"), "2");
  write_all(*draft, Draft::kItself, "file");
  draft->commit(Draft::kItself);
  EXPECT_EQ(read_all(*storage_, at("a")), "file");
  EXPECT_FALSE(storage_->exists(at("a/last")));
  save(*storage_, at("a"), "3", "folder");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "folder");
  EXPECT_THROW(storage_->open(at("a")), std::runtime_error);
}

TEST_P(StorageTest, AnOpenFileOutlivesItsReplacement) {
  const std::string text = pattern(5'000'000);
  save(*storage_, at("a"), "1", text);
  const auto file = storage_->open(at("a/last"));
  save(*storage_, at("a"), "2", "new");
  std::string again(text.size(), '?');
  const ReadRequest request{0, bytes_of(again)};
  if (!GetParam().keeps_open_files) {
    EXPECT_THROW(file->read({&request, 1}), std::runtime_error);
    return;
  }
  file->read({&request, 1});
  EXPECT_EQ(again, text);
}

TEST_P(StorageTest, RanksShareADraftByItsId) {
  constexpr int kRanks = 4;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto storage = GetParam().make();
        const auto draft = storage->draft(at("deep/er/a"), "x_1-Y");
        write_all(*draft, "x_1-Y_" + std::to_string(rank), pattern(1000, static_cast<size_t>(rank)));
      });
    }
  }
  const auto draft = storage_->draft(at("deep/er/a"), "x_1-Y");
  write_all(*draft, "last", "all");
  EXPECT_THAT(storage_->drafts(at("deep/er/a")), ElementsAre("x_1-Y"));
  draft->commit("last");
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(read_all(*storage_, at("deep/er/a/x_1-Y_" + std::to_string(rank))),
              pattern(1000, static_cast<size_t>(rank)));
  }
  EXPECT_THAT(storage_->list(at("deep")), ElementsAre("er"));
}

TEST_P(StorageTest, NamesHaveFoldersInThem) {
  const auto draft = storage_->draft(at("a/"), "1");
  write_all(*draft, "one/two/x-1", "x");
  write_all(*draft, "one/y-1", "y");
  write_all(*draft, "last", "z");
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("a//one/two/x-1")), "x");
  EXPECT_THAT(storage_->list(at("a")), ElementsAre("last", "one"));
  EXPECT_THAT(storage_->list(at("a/one/")), ElementsAre("two", "y-1"));
  EXPECT_TRUE(storage_->exists(at("a/one/two")));
}

TEST_P(StorageTest, NamesThatLeaveTheFolderAreRefused) {
  const auto draft = storage_->draft(at("a"), "1");
  for (const char* name : {"", "/x", "../x-1", "x/../y-1", "x//y-1", "./x-1", "x-1/"}) {
    EXPECT_THROW(draft->create(name), std::invalid_argument) << name;
  }
  EXPECT_THROW(storage_->draft(at("a"), ""), std::invalid_argument);
  EXPECT_THROW(storage_->draft(at("a"), "a/b"), std::invalid_argument);
  EXPECT_THROW(storage_->draft(at("a"), "a.b"), std::invalid_argument);
  for (const char* folder : {"", "/", ".", "a/.."}) EXPECT_THROW(storage_->draft(folder, "1"), std::invalid_argument);
}

TEST_P(StorageTest, AnUnfinishedFileIsNotThere) {
  const auto draft = storage_->draft(at("a"), "1");
  draft->create("half-1", 100)->write(0, bytes_of(std::string("half")));
  write_all(*draft, "last", "z");
  draft->commit("last");
  EXPECT_THAT(storage_->list(at("a")), ElementsAre("last"));
}

TEST_P(StorageTest, RanksSeeWhatOthersFinished) {
  const auto draft = storage_->draft(at("a"), "1");
  const auto other = GetParam().make()->draft(at("a"), "1");
  EXPECT_FALSE(other->has("small-1"));
  write_all(*draft, "small-1", "x");
  write_all(*draft, "some/large-1", pattern(9'000'000));
  EXPECT_TRUE(other->has("small-1"));
  EXPECT_TRUE(other->has("some/large-1"));
  EXPECT_FALSE(other->has("other-1"));
  draft->discard();
  EXPECT_FALSE(other->has("small-1"));
}

TEST_P(StorageTest, ADraftWithoutItsLastFileIsNotCommitted) {
  save(*storage_, at("a"), "1", "old");
  const auto draft = storage_->draft(at("a"), "2");
  write_all(*draft, "data-2", "new");
  EXPECT_THROW(draft->commit("last"), std::runtime_error);
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
  write_all(*draft, "last", "new");
  draft->commit("last");
  EXPECT_EQ(read_all(*storage_, at("a/last")), "new");
}

TEST_P(StorageTest, ADiscardedDraftLeavesNothing) {
  save(*storage_, at("a"), "1", "old");
  const auto draft = storage_->draft(at("a"), "2");
  write_all(*draft, "some/data-2", "new");
  write_all(*draft, "last", "new");
  draft->discard();
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
  EXPECT_THAT(storage_->drafts(at("a")), IsEmpty());
  EXPECT_THAT(storage_->list(at("a")), ElementsAre("data-1", "last"));
  EXPECT_THROW(draft->commit("last"), std::runtime_error);
  EXPECT_EQ(read_all(*storage_, at("a/last")), "old");
  draft->discard();
}

TEST_P(StorageTest, DraftsThatWereLeftAreFoundAndRemoved) {
  save(*storage_, at("a"), "0", "old");
  write_all(*storage_->draft(at("a"), "2"), "data-2", "new");
  write_all(*storage_->draft(at("a"), "1"), "data-1", "new");
  write_all(*storage_->draft(at("b"), "1"), "data-1", "new");
  const auto later = GetParam().make();
  EXPECT_THAT(later->drafts(at("a")), ElementsAre("1", "2"));
  EXPECT_THAT(later->drafts(at("c")), IsEmpty());
  EXPECT_THAT(later->drafts_in(*root_), ::testing::UnorderedElementsAre(
                                            DraftName{at("a"), "1"}, DraftName{at("a"), "2"}, DraftName{at("b"), "1"}));
  EXPECT_THAT(later->list(*root_), ElementsAre("a"));
  for (const DraftName& name : later->drafts_in(*root_)) later->draft(name.folder, name.id)->discard();
  EXPECT_THAT(later->drafts_in(*root_), IsEmpty());
  EXPECT_THAT(later->drafts(at("a")), IsEmpty());
  EXPECT_EQ(read_all(*later, at("a/last")), "old");
}

TEST_P(StorageTest, FoldersAreListed) {
  EXPECT_THAT(storage_->list(at("nowhere")), IsEmpty());
  save(*storage_, at("step_10"), "1", "x");
  save(*storage_, at("step_9"), "1", "x");
  save(*storage_, at("more/step_1"), "1", "x");
  EXPECT_THAT(storage_->list(*root_), ElementsAre("more", "step_10", "step_9"));
  EXPECT_THAT(storage_->list(*root_ + "/"), ElementsAre("more", "step_10", "step_9"));
}

TEST_P(StorageTest, FilesAndFoldersAreRemoved) {
  save(*storage_, at("a"), "1", "x");
  save(*storage_, at("ab"), "1", "x");
  storage_->remove(at("a/last"));
  EXPECT_FALSE(storage_->exists(at("a/last")));
  EXPECT_TRUE(storage_->exists(at("a/data-1")));
  storage_->remove(at("a"));
  EXPECT_FALSE(storage_->exists(at("a")));
  EXPECT_THAT(storage_->list(*root_), ElementsAre("ab"));
  EXPECT_THAT(storage_->drafts_in(*root_), IsEmpty());
  storage_->remove(at("a"));
  storage_->remove(at("nowhere/a"));
  EXPECT_EQ(read_all(*storage_, at("ab/last")), "x");
}

TEST_P(StorageTest, ManyRequestsAtOnce) {
  constexpr size_t kSize = 20'000'000;
  const std::string text = pattern(kSize);
  const auto draft = storage_->draft(at("a"), "1");
  write_all(*draft, "last", text);
  draft->commit("last");
  // 3,000 small ones and a few large ones, in no order, some of them the same.
  std::mt19937 random(7);  // NOLINT: the same every time
  std::vector<std::string> parts;
  std::vector<size_t> offsets;
  for (int i = 0; i < 3010; ++i) {
    const size_t size = i < 3000 ? random() % 5000 : random() % 9'000'000;
    offsets.push_back(random() % (kSize - size));
    parts.emplace_back(size, '?');
  }
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < parts.size(); ++i) {
    requests.push_back({static_cast<int64_t>(offsets[i]), bytes_of(parts[i])});
  }
  storage_->open(at("a/last"))->read(requests);
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_EQ(parts[i], text.substr(offsets[i], parts[i].size())) << i;
  }
}

TEST_P(StorageTest, ThreadsShareFilesAndWriters) {
  constexpr size_t kThreads = 8;
  constexpr size_t kPart = 700'000;
  const std::string text = pattern(kThreads * kPart);
  const auto draft = storage_->draft(at("a"), "1");
  const auto writer = draft->create("last");
  const auto in_all = [&](const std::function<void(size_t)>& work) {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  };
  in_all([&](size_t i) {
    for (size_t at = i * kPart; at < (i + 1) * kPart; at += 100'000) {
      writer->write(static_cast<int64_t>(at), bytes_of(text).subspan(at, 100'000));
    }
    write_all(*draft, "own-1-" + std::to_string(i), std::to_string(i));
  });
  writer->finish();
  draft->commit("last");
  const auto file = storage_->open(at("a/last"));
  std::atomic<int> equal = 0;
  in_all([&](size_t i) {
    std::string part(kPart, '?');
    const ReadRequest request{static_cast<int64_t>(i * kPart), bytes_of(part)};
    file->read({&request, 1});
    equal += part == text.substr(i * kPart, kPart) ? 1 : 0;
    equal += read_all(*storage_, at("a/own-1-" + std::to_string(i))) == std::to_string(i) ? 1 : 0;
  });
  EXPECT_EQ(equal, 2 * static_cast<int>(kThreads));
}

TEST_P(StorageTest, OffsetsGoBeyondFourGigabytes) {
  if (!GetParam().sparse) return;  // it would take the memory
  constexpr int64_t kFar = (int64_t{5} << 30) + 3;
  const std::string text = pattern(10'000);
  const auto draft = storage_->draft(at("a"), "1");
  const auto writer = draft->create("last");
  writer->write(kFar, bytes_of(text));
  writer->write(1, bytes_of(std::string("x")));
  writer->finish();
  draft->commit("last");
  const auto file = storage_->open(at("a/last"));
  EXPECT_EQ(file->size(), kFar + 10'000);
  std::string far(10'001, '?');
  std::string zeros(5'000'000, '?');
  const std::vector<ReadRequest> requests = {{kFar - 1, bytes_of(far)}, {int64_t{1} << 32, bytes_of(zeros)}};
  file->read(requests);
  EXPECT_EQ(far, std::string(1, '\0') + text);
  EXPECT_EQ(zeros, std::string(zeros.size(), '\0'));
}

}  // namespace sherd::testing
