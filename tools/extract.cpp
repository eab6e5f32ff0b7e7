// sherd extract: one tensor, or a part of it, as a .npy file.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "format/numbers.h"
#include "location.h"
#include "progress_bar.h"
#include "sherd/error.h"
#include "slice.h"
#include "stored/tensor_parts.h"
#include "stored_entry.h"
#include "verb.h"
#include "write_file.h"

namespace sherd::tools {
namespace {

using format::DType;

constexpr const char* kExamples =
    "  sherd extract runs/gpt/step-4000 model.embed -o embed.npy\n"
    "  sherd extract runs/gpt/step-4000 model.embed '0:100' -o rows.npy --as f32\n";

constexpr int64_t kPart = int64_t{4} << 20;

struct NpyType {
  std::string_view text;
  std::string_view descr;
  bool own;  // whether numpy has the dtype; else its bytes are written as integers of its size
};

// clang-format off
constexpr std::array<NpyType, format::kDTypeCount> kNpyTypes = {{
    {"f64", "<f8", true}, {"f32", "<f4", true}, {"f16", "<f2", true}, {"bf16", "<u2", false},
    {"i64", "<i8", true}, {"i32", "<i4", true}, {"i16", "<i2", true}, {"i8", "|i1", true},
    {"u8", "|u1", true}, {"u16", "<u2", true}, {"u32", "<u4", true}, {"u64", "<u8", true}, {"bool", "|b1", true},
    {"c32", "<u4", false}, {"c64", "<c8", true}, {"c128", "<c16", true},
    {"f8_e4m3fn", "|u1", false}, {"f8_e5m2", "|u1", false}, {"f8_e4m3fnuz", "|u1", false},
    {"f8_e5m2fnuz", "|u1", false}, {"f8_e8m0fnu", "|u1", false}, {"f4_e2m1fn_x2", "|u1", false},
}};
// clang-format on

const NpyType& npy_of(DType dtype) { return kNpyTypes[static_cast<size_t>(dtype)]; }

std::string npy_header(std::string_view descr, const Dims& size) {
  std::string shape;
  for (const int64_t rows : size) shape += fmt::format("{}, ", rows);
  if (size.size() > 1) shape.resize(shape.size() - 2);
  if (size.size() == 1) shape.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  // The elements begin at a multiple of 64.
  const bool wide = text.size() + 75 > 65535;
  const size_t before = wide ? 12 : 10;
  text.append(63 - (before + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY", 6);
  header += wide ? std::string("\2\0", 2) : std::string("\1\0", 2);
  for (size_t i = 0; i < before - 8; ++i) header += static_cast<char>((text.size() >> (8 * i)) & 0xFFU);
  return header + text;
}

// Numbers as f32 or f64; of complex ones both.
class Conversion {
 public:
  Conversion(const std::string& verb, DType from, const std::string& as) : from_(from), to_(from) {
    if (as.empty()) return;
    const bool complex = format::is_complex(from);
    to_ = as == "f64" ? (complex ? DType::c128 : DType::f64) : (complex ? DType::c64 : DType::f32);
    if (from != DType::f4_e2m1fn_x2) return;
    throw std::invalid_argument(ErrorText(verb, "elements of two numbers cannot be converted")
                                    .fact("dtype", format::names_of(from).text)
                                    .help("without --as: its bytes as u8"));
  }
  DType to() const { return to_; }

  std::span<const std::byte> convert(const std::vector<std::byte>& bytes) {
    if (to_ == from_) return bytes;
    const auto elements = static_cast<int64_t>(bytes.size()) / size_of(from_);
    numbers_.resize(static_cast<size_t>(elements * format::numbers_in(from_)));
    decode_numbers(from_, bytes.data(), elements, numbers_.data());
    if (to_ == DType::f64 || to_ == DType::c128) return std::as_bytes(std::span(numbers_));
    floats_.assign(numbers_.begin(), numbers_.end());
    return std::as_bytes(std::span(floats_));
  }

 private:
  DType from_;
  DType to_;
  std::vector<double> numbers_;
  std::vector<float> floats_;
};

}  // namespace

int extract(const Verb& verb, const Arguments& arguments) {
  std::string path, name, slice_text, output, as;
  bool force = false, as_json = false, no_verify = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("checkpoint", path, "a folder or a file")->required()->type_name(kCheckpointWord);
  parser.add_option("name", name, "a tensor")->required()->type_name(kNameWord);
  parser.add_option("slice", slice_text, "a part of it, as in Python: '0:4, -1'")->type_name("SLICE");
  parser.add_option("-o,--output", output, "the .npy file to write")->required()->type_name(kFileWord);
  parser.add_option("--as", as, "convert to f32 or f64; complex numbers to c64 or c128")
      ->type_name("f32|f64")
      ->check(CLI::IsMember({"f32", "f64"}));
  parser.add_flag("--force", force, "replace a file that is there");
  parser.add_flag("--no-verify", no_verify, "do not compare digests and CRCs of what is read");
  parser.add_flag("--json", as_json, "print what was written as JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  StoredEntry found = open_entry(verb.name, path, name, !no_verify);
  const format::TensorEntry* tensor = found.tensor();
  if (tensor == nullptr) {
    throw std::invalid_argument(ErrorText(verb.name, "this is no tensor")
                                    .fact("name", name)
                                    .help(fmt::format("sherd cat {} {} --json", path, name)));
  }
  const Slice slice = parse_slice(verb.name, slice_text, tensor->size);
  Conversion conversion(verb.name, tensor->dtype, as);
  const NpyType& type = npy_of(conversion.to());
  const Location target = storage_for(verb.name, output);
  refuse_existing(verb.name, target, output, force);
  stored::TensorParts parts(*found.checkpoint, *found.entry, verb.name);
  parts.check_covered(slice.box);

  const std::string header = npy_header(type.descr, slice.shown);
  const int64_t total = numel(slice.box) * size_of(conversion.to());
  const int64_t whole = static_cast<int64_t>(header.size()) + total;
  {
    ProgressBar bar(verb.name);
    const Progress progress = bar.callback();
    const auto draft = target.storage->draft(target.path, fmt::format("extract-{}", ::getpid()));
    try {
      const auto writer = draft->create(Draft::kItself, whole);
      writer->write(0, std::as_bytes(std::span(header)));
      int64_t at = static_cast<int64_t>(header.size());
      std::vector<std::byte> bytes;
      const int64_t most = kPart / size_of(tensor->dtype);
      if (total > 0) {
        stored::for_each_tile(slice.box, most, [&](const Box& tile) {
          bytes.resize(static_cast<size_t>(numel(tile) * size_of(tensor->dtype)));
          parts.read(tile, bytes.data());
          const auto converted = conversion.convert(bytes);
          writer->write(at, converted);
          at += static_cast<int64_t>(converted.size());
          progress(at, whole);
        });
      }
      writer->finish();
      draft->commit(Draft::kItself);
    } catch (...) {
      draft->discard();
      throw;
    }
  }
  if (as_json) {
    print_json({{"name", name},
                {"output", output},
                {"dtype", format::names_of(conversion.to()).text},
                {"npy_dtype", type.descr},
                {"size", slice.shown},
                {"bytes", whole}});
  } else {
    fmt::print("{}: {}{} as {}\n", output, format::names_of(conversion.to()).text, to_string(slice.shown), type.descr);
  }
  if (!type.own) {
    fmt::print(stderr, "extract: numpy has no {}: its bytes are written as {}; --as f32 converts them\n", type.text,
               type.descr.substr(1));
  }
  return kOk;
}

}  // namespace sherd::tools
