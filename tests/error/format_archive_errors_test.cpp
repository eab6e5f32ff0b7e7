// Archives that nobody honest writes, or that were damaged: each change is refused with a sentence.

#include <gtest/gtest.h>

#include <cstring>

#include "format/archive.h"
#include "format/zip.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

std::string refused(const std::string& bytes) {
  return test::refusal([&] { read_archive(MemorySource(bytes_of(bytes)), "a.pt"); });
}

struct Part {
  std::string name;
  std::string content;
};

/// An archive of these records, written as torch writes them. Its parts can be found by `at`.
struct Made {
  std::string bytes;
  std::vector<ZipEntry> entries;
  size_t directory = 0;

  template <class T>
  void set(size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
  /// Where an entry of the directory begins.
  size_t entry(size_t number) const {
    size_t at = directory;
    for (size_t i = 0; i < number; ++i) at = bytes.find("PK\1\2", at + 4);
    return at;
  }
  size_t header(size_t number) const { return static_cast<size_t>(entries[number].offset); }
};

Made make(const std::vector<Part>& parts) {
  Made made;
  for (const Part& part : parts) {
    const ZipEntry entry{.name = part.name,
                         .offset = static_cast<int64_t>(made.bytes.size()),
                         .size = static_cast<int64_t>(part.content.size()),
                         .crc = crc32(bytes_of(part.content))};
    append_local_header(made.bytes, entry);
    made.bytes += part.content;
    append_descriptor(made.bytes, entry);
    made.entries.push_back(entry);
  }
  made.directory = made.bytes.size();
  append_directory(made.bytes, made.entries, static_cast<int64_t>(made.directory));
  return made;
}

const std::vector<Part> kParts = {
    {"archive/data.pkl", "N."}, {"archive/data/0", "0123456789"}, {"archive/version", "3\n"}};

TEST(ArchiveErrors, TheArchiveThatTheOthersAreMadeOfIsGood) { EXPECT_EQ(refused(make(kParts).bytes), "nothing"); }

TEST(ArchiveErrors, WhatIsNoZipIsSaidToBeNone) {
  EXPECT_EQ(refused(""), "read_archive: this is no zip archive\n  in: a.pt");
  EXPECT_EQ(refused(std::string(1000, 'x')), "read_archive: this is no zip archive\n  in: a.pt");
  EXPECT_EQ(
      refused(std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14) + std::string(100, 'x')),
      "read_archive: this is no zip archive\n  in: a.pt\n"
      "  help: torch.save of PyTorch before 1.6 wrote it: write it again, torch.save(torch.load(path), path)");
}

TEST(ArchiveErrors, ATruncatedArchiveIsRefusedAtEveryLength) {
  const std::string bytes = make(kParts).bytes;
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refused(bytes.substr(0, size)), "nothing") << size;
}

TEST(ArchiveErrors, ADirectoryOutsideOfTheArchiveIsRefused) {
  Made made = make(kParts);
  const size_t end64 = made.bytes.size() - 98;
  made.set<uint64_t>(end64 + 48, 1 << 20);
  EXPECT_EQ(refused(made.bytes), "read_archive: its directory lies outside of it: 183 bytes at 1048576\n  in: a.pt");
  made.set<uint64_t>(end64 + 48, ~uint64_t{0} - 10);
  EXPECT_EQ(refused(made.bytes),
            "read_archive: its directory lies outside of it: 183 bytes at 18446744073709551605\n  in: a.pt");
}

TEST(ArchiveErrors, ACountThatDoesNotFitIsRefused) {
  Made made = make(kParts);
  made.set<uint64_t>(made.bytes.size() - 98 + 32, uint64_t{1} << 60);
  EXPECT_EQ(refused(made.bytes),
            "read_archive: a directory of 183 bytes cannot hold 1152921504606846976 records\n  in: a.pt");
  made.set<uint64_t>(made.bytes.size() - 98 + 32, 2);
  EXPECT_EQ(refused(made.bytes), "read_archive: 61 bytes follow the last entry of its directory\n  in: a.pt");
}

TEST(ArchiveErrors, AZip64RecordElsewhereIsRefused) {
  Made made = make(kParts);
  made.set<uint64_t>(made.bytes.size() - 42 + 8, 0);
  EXPECT_EQ(refused(made.bytes), "read_archive: the zip64 end record is not where the archive says\n  in: a.pt");
  made.set<uint64_t>(made.bytes.size() - 42 + 8, ~uint64_t{0});
  EXPECT_EQ(refused(made.bytes).substr(0, 66), "read_archive: the zip64 end record lies outside of the archive: by");
}

TEST(ArchiveErrors, ACompressedOrEncryptedRecordIsRefused) {
  Made made = make(kParts);
  made.set<uint16_t>(made.entry(1) + 10, 8);
  EXPECT_EQ(refused(made.bytes),
            "read_archive: a record is compressed\n  in: a.pt\n  record: archive/data/0\n"
            "  help: torch.save stores its records as they are; pack it again with zip -0");
  made = make(kParts);
  made.set<uint32_t>(made.entry(1) + 24, 0x7FFFFFFF);  // a bomb: the size it would have when unpacked
  EXPECT_EQ(refused(made.bytes).substr(0, 36), "read_archive: a record is compressed");
  made = make(kParts);
  made.set<uint16_t>(made.entry(0) + 8, 0x0809);
  EXPECT_EQ(refused(made.bytes), "read_archive: a record is encrypted\n  in: a.pt\n  record: archive/data.pkl");
}

TEST(ArchiveErrors, CompressedCodeOfTorchScriptIsLeftOut) {
  Made made = make({{"m/data.pkl", "N."}, {"m/code/__torch__.py", "def"}, {"m/version", "3\n"}});
  for (const size_t at : {made.entry(1) + 10, made.header(1) + 8}) made.set<uint16_t>(at, 8);
  made.set<uint32_t>(made.entry(1) + 24, 300);  // unpacked
  const Archive archive = read_archive(MemorySource(bytes_of(made.bytes)), "a.pt");
  EXPECT_EQ(archive.records.size(), 2U);
  EXPECT_EQ(archive.find("code/__torch__.py"), nullptr);
}

TEST(ArchiveErrors, RecordsThatOverlapOrLieOutsideAreRefused) {
  Made made = make(kParts);
  // The second record claims the third one's header.
  made.set<uint32_t>(made.entry(1) + 20, 120);
  made.set<uint32_t>(made.entry(1) + 24, 120);
  EXPECT_EQ(refused(made.bytes), "read_archive: records overlap: archive/data/0 and archive/version\n  in: a.pt");
  made.set<uint32_t>(made.entry(1) + 20, 1 << 30);
  made.set<uint32_t>(made.entry(1) + 24, 1 << 30);
  EXPECT_EQ(refused(made.bytes),
            "read_archive: a record lies outside of the archive: 1073741824 bytes at 192, before the directory at 338\n"
            "  in: a.pt\n  record: archive/data/0");
  made = make(kParts);
  made.set<uint32_t>(made.entry(2) + 42, 1 << 30);
  EXPECT_EQ(refused(made.bytes).substr(0, 68), "read_archive: a record's header lies outside of the archive: bytes 1");
}

TEST(ArchiveErrors, ALocalHeaderThatSaysSomethingElseIsRefused) {
  for (const size_t at : {size_t{6}, size_t{8}, size_t{26}, size_t{30}, size_t{40}}) {  // flags, method, name
    Made made = make(kParts);
    made.bytes[made.header(1) + at] ^= 1;
    EXPECT_EQ(
        refused(made.bytes),
        "read_archive: a record's header says something else than the directory\n  in: a.pt\n  record: archive/data/0")
        << at;
  }
  Made made = make(kParts);
  made.bytes[made.header(1)] = 'x';
  EXPECT_EQ(refused(made.bytes),
            "read_archive: a record does not begin where the directory says\n  in: a.pt\n  record: archive/data/0");
}

TEST(ArchiveErrors, NamesAreUniqueInOneFolderAndWithAVersion) {
  EXPECT_EQ(refused(make({{"a/version", "3\n"}, {"a/x", "1"}, {"a/x", "2"}}).bytes),
            "read_archive: a record stands twice\n  in: a.pt\n  record: a/x");
  EXPECT_EQ(refused(make({{"a/version", "3\n"}, {"b/x", "1"}}).bytes),
            "read_archive: a record lies outside of the folder a\n  in: a.pt\n  record: b/x");
  EXPECT_EQ(refused(make({{"a/data.pkl", "N."}}).bytes),
            "read_archive: it has no record \"version\", as all of torch's archives do\n  in: a.pt");
  EXPECT_EQ(refused(make({{"a/\xff", "N."}}).bytes), "read_archive: a record's name is no text\n  in: a.pt");
  EXPECT_EQ(refused(make({}).bytes), "read_archive: it is empty\n  in: a.pt");
}

TEST(ArchiveErrors, AFlippedBitInARecordIsFoundAndPlaced) {
  Made made = make(kParts);
  const MemorySource source(bytes_of(made.bytes));
  const Archive archive = read_archive(source, "a.pt");
  made.bytes[static_cast<size_t>(archive.records[1].offset) + 3] ^= 4;
  EXPECT_EQ(
      test::refusal([&] { read_record(source, archive.records[1], "a.pt"); }),
      "read_record: the bytes are not those that were written\n  in: a.pt\n  record: data/0\n  bytes: 192 to 202\n"
      "  CRC-32: 52cbe3d5, written a684c7c6");
}

}  // namespace
}  // namespace sherd::format
