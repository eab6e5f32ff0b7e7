#include "format/archive.h"

#include <gtest/gtest.h>

#include <numeric>

#include "format/pickle.h"
#include "format/saved.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

TEST(ArchiveTest, AValueComesBack) {
  const Value value = Dict{{{"epoch", 3}, {"name", "run"}, {"rates", List{0.1, 0.2}}}};
  const std::string bytes = archive_of(value);
  const MemorySource source(bytes_of(bytes));
  const Archive archive = read_archive(source, "value.pt");
  EXPECT_EQ(archive.folder, "archive");
  ASSERT_NE(archive.find("data.pkl"), nullptr);
  EXPECT_EQ(archive.find("data/0"), nullptr);
  EXPECT_EQ(unpickle(bytes_of(read_record(source, *archive.find("data.pkl"), "value.pt"))), value);
  EXPECT_EQ(read_record(source, *archive.find("version"), "value.pt"), "3\n");
}

TEST(ArchiveTest, StoragesLieAtMultiplesOf64AndAreShared) {
  const std::string storage = "0123456789abcdef0123456789abcdef";
  TensorRef whole{.dtype = DType::f32, .storage = "0", .storage_bytes = 32, .sizes = {2, 4}, .strides = {4, 1}};
  TensorRef row{.dtype = DType::f32, .storage = "0", .storage_bytes = 32, .offset = 4, .sizes = {4}, .strides = {1}};
  const Value value = Dict{{{"whole", whole}, {"row", row}}};
  const StorageBytes storages[] = {{"0", bytes_of(storage)}};
  std::string bytes;
  write_archive(value, storages, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  const MemorySource source(bytes_of(bytes));
  const Archive archive = read_archive(source, "shared.pt");
  const Record* record = archive.find("data/0");
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->offset % 64, 0);
  EXPECT_EQ(read_record(source, *record, "shared.pt"), storage);
  EXPECT_EQ(unpickle(bytes_of(read_record(source, *archive.find("data.pkl"), "shared.pt"))), value);
}

TEST(ArchiveTest, ATensorsPickleIsWhatTheGeneralWriterWrites) {
  const TensorItem item{.dtype = DType::f8_e5m2, .sizes = {2, 70000}, .strides = {1, 2}};
  const std::string data(static_cast<size_t>(item.data_bytes()), 'x');
  const TensorRef tensor{.dtype = item.dtype,
                         .storage = "0",
                         .storage_bytes = item.data_bytes(),
                         .sizes = item.sizes,
                         .strides = item.strides};
  const StorageBytes storages[] = {{"0", bytes_of(data)}};
  std::string whole;
  write_archive(tensor, storages, [&](std::span<const std::byte> part) {
    whole.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  const std::string head = head_of(item);
  EXPECT_TRUE(head + data + tail_of(item, crc32(bytes_of(data))) == whole);
  EXPECT_EQ(head.size() % 64, 0U);
}

TEST(ArchiveTest, LengthsAreKnownWithoutWriting) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{65536}, int64_t{1} << 31,
                             (int64_t{1} << 32) - 800, (int64_t{1} << 32) - 1, int64_t{1} << 32, int64_t{1} << 40}) {
    for (size_t ndim = 1; ndim < 6; ++ndim) {
      TensorItem item{.dtype = DType::u8, .sizes = Dims(ndim, 1), .strides = Dims(ndim, 1)};
      item.sizes[0] = size;
      const ItemLengths lengths = lengths_of(item);
      EXPECT_EQ(lengths.head, static_cast<int64_t>(head_of(item).size())) << size;
      EXPECT_EQ(lengths.data, size);
      EXPECT_EQ(lengths.tail, static_cast<int64_t>(tail_of(item, 0).size())) << size;
      EXPECT_EQ(lengths.head % 64, 0);
    }
  }
}

// Texts here and there, zeros between them.
class SparseSource final : public ByteSource {
 public:
  void add_text(const std::string& text) {
    texts_.emplace_back(size_, text);
    size_ += static_cast<int64_t>(text.size());
  }
  void add_zeros(int64_t count) { size_ += count; }

  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> into) const override {
    ASSERT_LE(into.size(), size_t{1} << 20) << "elements are not read to find them";
    ASSERT_LE(offset + static_cast<int64_t>(into.size()), size_);
    for (std::byte& byte : into) byte = byte_at(offset++);
  }

 private:
  std::byte byte_at(int64_t at) const {
    for (const auto& [begin, text] : texts_) {
      if (at >= begin && at < begin + static_cast<int64_t>(text.size())) {
        return static_cast<std::byte>(text[static_cast<size_t>(at - begin)]);
      }
    }
    return std::byte{0};
  }

  std::vector<std::pair<int64_t, std::string>> texts_;
  int64_t size_ = 0;
};

TEST(ArchiveTest, AnItemAboveFourGibibytesIsFound) {
  for (const int64_t size : {(int64_t{1} << 32) - 1, int64_t{1} << 32, int64_t{5} << 30}) {
    const TensorItem item{.dtype = DType::u8, .sizes = {size}, .strides = {1}};
    SparseSource source;
    source.add_text(head_of(item));
    source.add_zeros(size);
    source.add_text(tail_of(item, 0x12345678));
    EXPECT_EQ(source.size(), lengths_of(item).total());
    const Saved saved = read_saved(source, "large");
    const Record* record = saved.archive.find("data/0");
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->offset, lengths_of(item).head);
    EXPECT_EQ(record->size, size);
    EXPECT_EQ(record->crc, 0x12345678U);
    EXPECT_EQ(saved.value.as<TensorRef>()->sizes, Dims{size});
  }
}

TEST(ArchiveTest, ASecondStorageBehindFourGibibytesIsFound) {
  const int64_t sizes[] = {int64_t{5} << 30, 1000, int64_t{6} << 30};
  Dict value;
  std::vector<StorageSize> storages;
  for (const int64_t size : sizes) {
    const std::string key = std::to_string(storages.size());
    value.items.emplace_back(
        key, TensorRef{.dtype = DType::u8, .storage = key, .storage_bytes = size, .sizes = {size}, .strides = {1}});
    storages.push_back({key, size});
  }
  const ArchiveLayout layout(value, storages);
  SparseSource source;
  const std::vector<uint32_t> crcs = {1, 2, 3};
  for (size_t i = 0; i < storages.size(); ++i) {
    source.add_text(layout.text(i, std::span(crcs).first(i)));
    EXPECT_EQ(source.size(), layout.offset(i));
    source.add_zeros(sizes[i]);
  }
  source.add_text(layout.text(storages.size(), crcs));
  EXPECT_EQ(source.size(), layout.size());
  const Saved saved = read_saved(source, "large.pt");
  for (size_t i = 0; i < storages.size(); ++i) {
    const Record* record = saved.archive.find("data/" + storages[i].key);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->offset, layout.offset(i));
    EXPECT_EQ(record->offset % 64, 0);
    EXPECT_EQ(record->size, sizes[i]);
    EXPECT_EQ(record->crc, crcs[i]);
  }
  EXPECT_EQ(saved.value, Value(value));
}

TEST(ArchiveTest, AStorageThatIsMissingIsNamed) {
  const TensorRef tensor{.dtype = DType::f32, .storage = "7", .storage_bytes = 8, .sizes = {2}, .strides = {1}};
  EXPECT_EQ(test::refusal([&] { archive_of(tensor); }),
            "write_archive: a tensor's storage is not among those given, or has another size\n  tensor: tensor f32[2]\n"
            "  storage: \"7\" of 8 bytes\n  given: none of that name");
}

}  // namespace
}  // namespace sherd::format
