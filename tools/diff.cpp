// sherd diff: how two checkpoints differ.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "location.h"
#include "name_filter.h"
#include "progress_bar.h"
#include "sherd/inspect.h"
#include "terminal.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd diff runs/gpt/step-3000 runs/gpt/step-4000\n"
    "  sherd diff model.safetensors runs/gpt/step-4000 --filter 'model.*'\n"
    "  sherd diff a b --ignore-dtype --relative 0.01    after a change to bf16\n"
    "  sherd diff a b --json\n";

std::string kind_of(const std::string& dtype, const Dims& size) { return dtype + to_string(size); }

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }

Json to_json(const DiffResult& result) {
  Json tensors = Json::array();
  for (const TensorDifference& tensor : result.tensors) {
    Json one = {{"name", tensor.name},
                {"dtypes", {tensor.dtype, tensor.other_dtype}},
                {"sizes", {tensor.size, tensor.other_size}}};
    if (tensor.size == tensor.other_size) {
      one["elements"] = tensor.elements;
      one["nans"] = tensor.nans;
      one["max_absolute"] = number(tensor.max_absolute);
      one["max_relative"] = number(tensor.max_relative);
      one["first"] = tensor.elements > 0 ? Json(tensor.first) : Json();
      one["first_values"] = {tensor.first_value, tensor.first_other_value};
    }
    tensors.push_back(std::move(one));
  }
  Json objects = Json::array();
  for (const ObjectDifference& object : result.objects) {
    objects.push_back({{"name", object.name}, {"texts", {object.text, object.other_text}}});
  }
  return {{"equal", result.equal()},
          {"only_in_first", result.only_here},
          {"only_in_second", result.only_there},
          {"tensors", tensors},
          {"objects", objects},
          {"compared", result.compared},
          {"bytes_compared", result.bytes}};
}

void print_tensor(const TensorDifference& tensor, bool color) {
  std::string line = styled("~ " + tensor.name, Style::yellow, color) + "  " + kind_of(tensor.dtype, tensor.size);
  if (tensor.dtype != tensor.other_dtype || tensor.size != tensor.other_size) {
    line += " and " + kind_of(tensor.other_dtype, tensor.other_size);
  }
  if (tensor.size == tensor.other_size) {
    if (tensor.elements == 0) {
      line += ": the dtypes differ, all elements are equal";
    } else {
      line += fmt::format(": {} of {} differ, by {:.3g} at most, relative {:.3g}; first {}: {} and {}",
                          count_text(tensor.elements), counted(numel(tensor.size), "element"), tensor.max_absolute,
                          tensor.max_relative, to_string(tensor.first), tensor.first_value, tensor.first_other_value);
      if (tensor.nans > 0) line += fmt::format("; {} NaN on one side", count_text(tensor.nans));
    }
  }
  fmt::print("{}\n", line);
}

void print_text(const DiffResult& result) {
  const bool color = has_color(stdout);
  for (const std::string& name : result.only_here) fmt::print("{}\n", styled("- " + name, Style::red, color));
  for (const std::string& name : result.only_there) fmt::print("{}\n", styled("+ " + name, Style::green, color));
  for (const TensorDifference& tensor : result.tensors) print_tensor(tensor, color);
  for (const ObjectDifference& object : result.objects) {
    fmt::print("{}  {} and {}\n", styled("~ " + object.name, Style::yellow, color), object.text, object.other_text);
  }
  const auto different = static_cast<int64_t>(result.tensors.size() + result.objects.size());
  fmt::print("{} equal, {} different, {} only in the first (-), {} only in the second (+)\n",
             count_text(result.compared - different), count_text(different),
             count_text(static_cast<int64_t>(result.only_here.size())),
             count_text(static_cast<int64_t>(result.only_there.size())));
}

}  // namespace

int diff(const Verb& verb, const Arguments& arguments) {
  std::string path, other;
  std::vector<std::string> patterns;
  DiffOptions options{.operation = verb.name};
  bool as_json = false, no_verify = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("first", path, "a checkpoint")->required()->type_name(kCheckpointWord);
  parser.add_option("second", other, "another, of any format, cut in any way")->required()->type_name(kCheckpointWord);
  parser.add_option("--absolute", options.absolute, "elements are equal where |a - b| <= this + relative * |b| (0)")
      ->type_name("NUMBER");
  parser.add_option("--relative", options.relative, "see --absolute (0)")->type_name("NUMBER");
  parser.add_flag("--ignore-dtype", options.ignore_dtypes, "tensors of other dtypes may be equal");
  parser.add_option("--filter", patterns, "only names that match; may be repeated")
      ->type_name(kNameWord)
      ->allow_extra_args(false);
  parser.add_flag("--no-verify", no_verify, "do not compare digests and CRCs of what is read");
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Location first = storage_for(verb.name, path);
  const Location second = storage_for(verb.name, other);
  const NameFilter wanted(patterns);
  options.storage = first.storage;
  options.other_storage = second.storage;
  options.verify = !no_verify;
  options.wanted = wanted;
  DiffResult result;
  {
    ProgressBar bar(verb.name);
    options.progress = bar.callback();
    result = diff_checkpoints(first.path, second.path, options);
  }
  if (!wanted.empty() && result.compared == 0 && result.only_here.empty() && result.only_there.empty()) {
    wanted.refuse(verb.name, path);
  }
  if (as_json) {
    print_json(to_json(result));
  } else {
    print_text(result);
  }
  return result.equal() ? kOk : kDifference;
}

}  // namespace sherd::tools
