// sherd cat: the values of one tensor or object.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "format/numbers.h"
#include "format/object_json.h"
#include "format/saved.h"
#include "format/unfolded.h"
#include "print_values.h"
#include "sherd/error.h"
#include "slice.h"
#include "stored/as_damage.h"
#include "stored/tensor_parts.h"
#include "stored_entry.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd cat runs/gpt/step-4000 model.norm.weight\n"
    "  sherd cat runs/gpt/step-4000 model.embed '0:4, :8' --precision 6\n"
    "  sherd cat runs/gpt/step-4000 step\n"
    "  sherd cat runs/gpt/step-4000 model.norm.weight --json\n";

Json element_json(format::DType dtype, const std::byte* element) {
  using format::DType;
  if (dtype == DType::boolean) return *element != std::byte{};
  if (dtype == DType::u64 || dtype == DType::i64) return Json::parse(element_text(dtype, element));
  double numbers[2] = {};
  decode_numbers(dtype, element, 1, numbers);
  const auto one = [&](double number) -> Json {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    if (!format::is_floating(dtype)) return static_cast<int64_t>(number);
    return number;
  };
  if (format::numbers_in(dtype) == 2) return {one(numbers[0]), one(numbers[1])};
  return one(numbers[0]);
}

Json nested_json(format::DType dtype, const Dims& size, size_t dim, const std::byte*& at) {
  if (dim == size.size()) {
    Json element = element_json(dtype, at);
    at += size_of(dtype);
    return element;
  }
  Json list = Json::array();
  for (int64_t i = 0; i < size[dim]; ++i) list.push_back(nested_json(dtype, size, dim + 1, at));
  return list;
}

int print_object(StoredEntry& found, bool as_json) {
  const std::string& name = found.entry->name;
  const std::string archive = stored::as_damage([&] {
    return found.checkpoint->object(std::get<format::BytesEntry>(found.entry->content).place, "object " + name);
  });
  if (as_json) {
    const Json value = stored::as_damage([&] { return format::object_to_json(archive, name); });
    print_json({{"name", name}, {"value", value}});
    return kOk;
  }
  const format::MemorySource source(std::as_bytes(std::span(archive)));
  const auto saved = stored::as_damage([&] {
    auto read = format::read_saved(source, name);
    format::check_unfolded(read.value, "cat", name);
    return read;
  });
  fmt::print("{}\n", to_string(saved.value, std::numeric_limits<size_t>::max() / 2));
  return kOk;
}

}  // namespace

int cat(const Verb& verb, const Arguments& arguments) {
  std::string path, name, slice_text;
  PrintOptions options;
  bool all = false, as_json = false, no_verify = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("checkpoint", path, "a folder or a file")->required()->type_name(kCheckpointWord);
  parser.add_option("name", name, "a tensor or an object")->required()->type_name(kNameWord);
  parser.add_option("slice", slice_text, "a part of it, as in Python: '0:4, -1'")->type_name("SLICE");
  parser.add_option("--precision", options.precision, "digits behind the point (4)")
      ->type_name("N")
      ->check(CLI::Range(0, 20));
  parser.add_flag("--exact", options.exact, "as many digits as it takes to read back the same number");
  parser.add_flag("--all", all, "every element, however many");
  parser.add_flag("--no-verify", no_verify, "do not compare digests and CRCs of what is read");
  parser.add_flag("--json", as_json, "print JSON: all elements, exact");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  StoredEntry found = open_entry(verb.name, path, name, !no_verify);
  const format::TensorEntry* tensor = found.tensor();
  if (tensor == nullptr) {
    if (slice_text.empty()) return print_object(found, as_json);
    throw std::invalid_argument(ErrorText(verb.name, "this is no tensor, so it has no parts")
                                    .fact("name", name)
                                    .help(fmt::format("sherd cat {} {}", path, name)));
  }
  const Slice slice = parse_slice(verb.name, slice_text, tensor->size);
  stored::TensorParts parts(*found.checkpoint, *found.entry, verb.name);
  parts.check_covered(slice.box);
  const auto read = [&](const Box& box) {
    std::vector<std::byte> bytes(static_cast<size_t>(numel(box) * size_of(tensor->dtype)));
    if (!bytes.empty()) parts.read(box, bytes.data());
    return bytes;
  };
  if (as_json) {
    const std::vector<std::byte> bytes = read(slice.box);
    const std::byte* at = bytes.data();
    print_json({{"name", name},
                {"dtype", format::names_of(tensor->dtype).text},
                {"size", tensor->size},
                {"box", {{"offset", slice.box.offset}, {"size", slice.box.size}}},
                {"values", nested_json(tensor->dtype, slice.shown, 0, at)}});
    return kOk;
  }
  if (all) options.threshold = std::numeric_limits<int64_t>::max();
  fmt::print("{}\n{}{}\n", values_text(tensor->dtype, slice.box, slice.shown, read, options),
             format::names_of(tensor->dtype).text, to_string(slice.shown));
  return kOk;
}

}  // namespace sherd::tools
