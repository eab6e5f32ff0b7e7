#include "format/safetensors.h"

#include <gtest/gtest.h>

#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

/// A file with `data` bytes of data.
std::string file_of(std::string header, size_t data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(data, 'x');
}
std::string refused(const std::string& header, size_t data) {
  const std::string bytes = file_of(header, data);
  return test::refusal([&] { read_safetensors(MemorySource(bytes_of(bytes)), "m.safetensors"); });
}
std::string problem(const std::string& header, size_t data) {
  const std::string text = refused(header, data);
  return text.substr(0, text.find('\n'));
}

SafetensorsFile made() {
  SafetensorsFile file;
  file.metadata = {{"format", "pt"}, {"note", "it's \"quoted\" \n"}};
  file.tensors = {
      {.name = "b.größe", .dtype = DType::f32, .sizes = {2, 3}},
      {.name = "a", .dtype = DType::i8, .sizes = {3}},
      {.name = "scalar", .dtype = DType::f64, .sizes = {}},
      {.name = "empty", .dtype = DType::bf16, .sizes = {0, 7}},
      {.name = "half", .dtype = DType::f4_e2m1fn_x2, .sizes = {3, 2}},
  };
  return file;
}

TEST(SafetensorsTest, ComesBackWideDtypesFirst) {
  SafetensorsFile file = made();
  const std::string head = lay_out_safetensors(file);
  EXPECT_EQ(head.size() % 8, 0U);
  const std::string bytes = head + std::string(static_cast<size_t>(file.size) - head.size(), 'x');
  const SafetensorsFile read = read_safetensors(MemorySource(bytes_of(bytes)), "m");
  EXPECT_EQ(read, file);
  EXPECT_EQ(read.tensors[0].name, "scalar");
  EXPECT_EQ(read.tensors[0].offset, static_cast<int64_t>(head.size()));
  EXPECT_EQ(read.find("a")->offset, static_cast<int64_t>(head.size()) + 32);
  EXPECT_EQ(read.find("half")->sizes, (Dims{3, 2}));
  EXPECT_EQ(*read.find_metadata("note"), "it's \"quoted\" \n");
}

TEST(SafetensorsTest, TheBytesAreTheLibrarys) {
  SafetensorsFile file;
  file.metadata = {{"format", "pt"}};
  file.tensors = {{.name = "b", .dtype = DType::f32, .sizes = {2, 3}},
                  {.name = "a", .dtype = DType::i8, .sizes = {3}},
                  {.name = "s", .dtype = DType::f32, .sizes = {}},
                  {.name = "e", .dtype = DType::f32, .sizes = {0, 2}}};
  // safetensors 0.8 of the same tensors.
  EXPECT_EQ(lay_out_safetensors(file).substr(8),
            "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
            "\"e\":{\"dtype\":\"F32\",\"shape\":[0,2],\"data_offsets\":[24,24]},"
            "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
            "\"a\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[28,31]}}   ");
}

TEST(SafetensorsTest, AnEmptyFileIsOne) {
  EXPECT_EQ(problem("{}", 0), "nothing");
  SafetensorsFile file;
  EXPECT_EQ(lay_out_safetensors(file).substr(8), "{}      ");
}

TEST(SafetensorsTest, WhatIsNoneIsRefused) {
  EXPECT_EQ(test::refusal([&] { read_safetensors(MemorySource(bytes_of("short")), "m"); }),
            "read_safetensors: this is no safetensors file: it is too short\n  in: m");
  EXPECT_EQ(test::refusal([&] { read_safetensors(MemorySource(bytes_of(std::string(8, '\xff'))), "m"); }),
            "read_safetensors: this is no safetensors file: its header would have 18446744073709551615 bytes\n  in: m");
  std::string cut = file_of("{}", 0);
  cut[0] = 100;
  EXPECT_EQ(test::refusal([&] { read_safetensors(MemorySource(bytes_of(cut)), "m"); }),
            "read_safetensors: its header is cut off\n  in: m");
  EXPECT_EQ(problem("[]", 0), "read_safetensors: this is no safetensors file: its header is no JSON object");
  EXPECT_EQ(problem("{", 0), "read_safetensors: its header is no JSON: byte 2");
  EXPECT_EQ(problem("{}x", 0), "read_safetensors: its header is no JSON: byte 3");
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}";
}

TEST(SafetensorsTest, PlacesAreCheckedAgainstSizesEachOtherAndTheFile) {
  EXPECT_EQ(problem("{" + tensor("w", "F32", "2", "0,8") + "}", 8), "nothing");
  EXPECT_EQ(refused("{" + tensor("w", "F32", "2", "0,4") + "}", 4),
            "read_safetensors: a tensor's place is not as large as the tensor\n  in: m.safetensors\n  tensor: w\n"
            "  data_offsets: 0 to 4\n  needed: 8 bytes for f32[2]");
  EXPECT_EQ(problem("{" + tensor("w", "F32", "2", "8,0") + "}", 8),
            "read_safetensors: a tensor's place is not as large as the tensor");
  EXPECT_EQ(refused("{" + tensor("w", "I8", "2", "0,2") + "," + tensor("v", "I8", "2", "1,3") + "}", 3),
            "read_safetensors: tensors overlap: bytes 1 to 2\n  in: m.safetensors\n  tensor: v");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "2", "0,2") + "," + tensor("v", "I8", "2", "3,5") + "}", 5),
            "read_safetensors: a hole between tensors: bytes 2 to 3");
  EXPECT_EQ(refused("{" + tensor("w", "I8", "2", "0,2") + "}", 5),
            "read_safetensors: the tensors do not end where the file ends\n  in: m.safetensors\n  tensors: 2 bytes\n"
            "  file: 5 bytes behind the header");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "4611686018427387904,4", "0,0") + "}", 0),
            "read_safetensors: an impossible size");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "18446744073709551615", "0,0") + "}", 0),
            "read_safetensors: an impossible size");
  EXPECT_EQ(problem("{" + tensor("w", "F4", "3", "0,2") + "}", 2), "read_safetensors: half bytes that fill no byte");
}

TEST(SafetensorsTest, HeadersOfAnotherFormAreRefused) {
  EXPECT_EQ(refused("{" + tensor("w", "F32", "2", "0,8") + "," + tensor("w", "F32", "2", "8,16") + "}", 16),
            "read_safetensors: a name stands twice\n  in: m.safetensors\n  tensor: w");
  EXPECT_EQ(problem("{" + tensor("w", "F33", "2", "0,8") + "}", 8), "read_safetensors: the dtype F33 is not known");
  EXPECT_EQ(problem("{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8),
            "read_safetensors: dtype, shape or data_offsets is missing");
  EXPECT_EQ(problem("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8),
            "read_safetensors: the field dtype stands twice");
  EXPECT_EQ(problem("{\"w\":{\"code\":\"F32\"}}", 8), "read_safetensors: the field code is not known");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "2", "0,1,2") + "}", 8),
            "read_safetensors: data_offsets are more than two");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "-2", "0,2") + "}", 8),
            "read_safetensors: its header has a negative number where none belongs");
  EXPECT_EQ(problem("{" + tensor("w", "I8", "[2]", "0,2") + "}", 8),
            "read_safetensors: its header has an array where none belongs");
  EXPECT_EQ(problem("{\"w\":7}", 8), "read_safetensors: its header has a number where none belongs");
  EXPECT_EQ(problem("{\"w\":[1]}", 8), "read_safetensors: its header has an array where none belongs");
  EXPECT_EQ(problem("{\"__metadata__\":{\"a\":{}}}", 0),
            "read_safetensors: its header has an object where none belongs");
  EXPECT_EQ(problem("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "read_safetensors: __metadata__ has a twice");
  EXPECT_EQ(problem("{\"w\":" + std::string(100000, '['), 0),
            "read_safetensors: its header has an array where none belongs");
}

TEST(SafetensorsTest, WhatTheFormatCannotHoldIsNotWritten) {
  SafetensorsFile file;
  file.tensors = {{.name = "c", .dtype = DType::c128, .sizes = {2}}};
  EXPECT_EQ(test::refusal([&] { lay_out_safetensors(file); }),
            "lay_out_safetensors: safetensors has no dtype complex128\n  tensor: c");
  file.tensors = {{.name = "__metadata__", .dtype = DType::f32, .sizes = {2}}};
  EXPECT_EQ(test::refusal([&] { lay_out_safetensors(file); }),
            "lay_out_safetensors: a name stands twice\n  tensor: __metadata__");
}

TEST(SafetensorsIndexTest, ComesBackAndIsChecked) {
  const SafetensorsIndexFile index{.total_size = 123,
                                   .files = {{"a", "model-00001-of-00002.safetensors"}, {"b", "x/y"}}};
  EXPECT_EQ(decode_safetensors_index(bytes_of(encode_safetensors_index(index)), "i"), index);
  const auto text = [](const std::string& json) {
    const std::string refusal = test::refusal([&] { decode_safetensors_index(bytes_of(json), "i"); });
    return refusal.substr(0, refusal.find('\n'));
  };
  EXPECT_EQ(text("{\"weight_map\":{}}"), "nothing");
  EXPECT_EQ(text("{\"metadata\":{\"total_size\":1e9,\"other\":[1]},\"weight_map\":{}}"), "nothing");
  EXPECT_EQ(text("{}"), "decode_safetensors_index: it has no weight_map");
  EXPECT_EQ(text("{x"), "decode_safetensors_index: this is no JSON: byte 2");
  EXPECT_EQ(text("{\"weight_map\":{\"a\":\"../b\"}}"),
            "decode_safetensors_index: a file lies outside of the folder: \"../b\"");
  EXPECT_EQ(text("{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}"), "decode_safetensors_index: the key \"a\" stands twice");
  EXPECT_EQ(text("{\"weight_map\":{\"a\":1}}"), "decode_safetensors_index: a file is no text");
  EXPECT_EQ(text("{\"metadata\":{\"total_size\":-1},\"weight_map\":{}}"),
            "decode_safetensors_index: total_size is no size");
  EXPECT_EQ(text(std::string(200, '[')), "decode_safetensors_index: JSON deeper than 100");
}

NamedSafetensors part(const std::string& name, Dims sizes, const Dims& offset, DType dtype = DType::f32) {
  NamedSafetensors named{.name = name, .file = {}};
  named.file.tensors = {{.name = "w", .dtype = dtype, .sizes = std::move(sizes)}};
  const std::pair<std::string, Dims> offsets[] = {{"w", offset}};
  named.file.metadata = sharding_metadata(offsets);
  lay_out_safetensors(named.file);
  return named;
}

TEST(SafetensorsFolderTest, PartsInSeveralFilesAreChunksOfOneTensor) {
  const NamedSafetensors files[] = {part("f0", {2, 3}, {0, 0}), part("f1", {1, 3}, {2, 0}), part("f2", {0, 3}, {3, 0})};
  const Metadata metadata = metadata_of(files, "folder");
  ASSERT_EQ(metadata.entries.size(), 1U);
  const auto& tensor = std::get<TensorEntry>(metadata.entries[0].content);
  EXPECT_EQ(tensor.size, (Dims{3, 3}));
  ASSERT_EQ(tensor.chunk_count(), 3U);
  EXPECT_EQ(tensor.box(1), (Box{{2, 0}, {1, 3}}));
  EXPECT_EQ(tensor.places[1], (Place{.file = 1, .offset = files[1].file.tensors[0].offset, .length = 12}));
}

TEST(SafetensorsFolderTest, PartsThatDoNotFitTogetherAreRefused) {
  const NamedSafetensors twice[] = {part("f0", {2}, {0}), part("f1", {2}, {0})};
  EXPECT_EQ(test::refusal([&] { metadata_of(twice, "folder"); }),
            "read_safetensors: a tensor stands in two files: f0 and f1\n  in: folder\n  tensor: w");
  const NamedSafetensors dtypes[] = {part("f0", {2}, {0}), part("f1", {2}, {2}, DType::f16)};
  EXPECT_EQ(test::refusal([&] { metadata_of(dtypes, "folder"); }),
            "read_safetensors: a tensor has another dtype or ndim in another file\n  in: folder/f1\n  tensor: w");
  const NamedSafetensors offsets[] = {part("f0", {2}, {0, 0})};
  EXPECT_EQ(test::refusal([&] { metadata_of(offsets, "folder"); }),
            "sharding_of: not as many offsets as dims\n  in: folder/f0\n  tensor: w");
}

TEST(SafetensorsFolderTest, SizesThatCannotBeCountedAreRefused) {
  const int64_t far = int64_t{1} << 40;
  const NamedSafetensors apart[] = {part("f0", {1, 1}, {0, 0}), part("f1", {1, 1}, {far, far})};
  EXPECT_EQ(test::refusal([&] { metadata_of(apart, "folder"); }),
            "read_safetensors: an impossible size\n  in: folder/f1\n  tensor: w");
  const NamedSafetensors empty[] = {part("f0", {0, far, far}, {0, 0, 0})};
  EXPECT_EQ(test::refusal([&] { metadata_of(empty, "folder"); }),
            "read_safetensors: an impossible size\n  in: folder/f0\n  tensor: w");
}

}  // namespace
}  // namespace sherd::format
