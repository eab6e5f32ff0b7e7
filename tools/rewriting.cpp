#include "rewriting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "location.h"
#include "plan/redistribute.h"
#include "progress_bar.h"
#include "sherd/error.h"

namespace sherd::tools {
namespace {

std::vector<Renaming> renamings_of(const Verb& verb, const std::vector<std::string>& texts) {
  std::vector<Renaming> renamings;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw std::invalid_argument(ErrorText(verb.name, "a renaming has the form OLD=NEW")
                                      .fact("found", text)
                                      .help(fmt::format("sherd {} ... --rename \"model.*=net.*\"", verb.name)));
    }
    renamings.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return renamings;
}

CheckpointFormat format_named(const Verb& verb, const std::string& name) {
  if (name.empty()) return CheckpointFormat::automatic;
  for (const auto format : {CheckpointFormat::dcp, CheckpointFormat::safetensors, CheckpointFormat::torch_save}) {
    if (name == to_string(format)) return format;
  }
  throw std::invalid_argument(ErrorText(verb.name, "no such format")
                                  .fact("format", name)
                                  .fact("formats", "dcp, safetensors, torch.save")
                                  .help(fmt::format("sherd {} --help", verb.name)));
}

bool is_on_disk(const std::string& path) { return path.find("://") == std::string::npos; }

// "repair: a file is damaged\n  file: x\n  help: ..." as "a file is damaged, file: x".
std::string in_one_line(const std::string& error) {
  std::string text;
  for (size_t begin = 0; begin < error.size();) {
    const size_t end = std::min(error.find('\n', begin), error.size());
    const std::string line = error.substr(begin, end - begin);
    begin = end + 1;
    if (text.empty()) {
      text = line.substr(line.find(": ") == std::string::npos ? 0 : line.find(": ") + 2);
    } else if (line.find("help: ") == std::string::npos) {
      text += ", " + line.substr(std::min(line.find_first_not_of(' '), line.size()));
    }
  }
  return text;
}

void print_report(const Rewriting& rewriting, const RewriteResult& result) {
  fmt::print("{}: {} {} and {} {} in {} {}, {}\n", rewriting.to, result.tensors,
             result.tensors == 1 ? "tensor" : "tensors", result.objects, result.objects == 1 ? "object" : "objects",
             result.files, result.files == 1 ? "file" : "files", plan::bytes_text(result.bytes));
  if (!result.objects_as_json.empty()) {
    fmt::print("objects kept as JSON in the file's metadata: {}\n", fmt::join(result.objects_as_json, ", "));
  }
  if (!result.of_each_rank.empty()) {
    fmt::print("each rank has its own, kept is the first one's: {}\n", fmt::join(result.of_each_rank, ", "));
  }
  for (const auto& left_out : result.damaged)
    fmt::print("left out: {}: {}\n", left_out.name, in_one_line(left_out.why));
}

void print_json_report(const Rewriting& rewriting, const RewriteResult& result) {
  Json damaged = Json::array();
  for (const auto& left_out : result.damaged) damaged.push_back({{"name", left_out.name}, {"why", left_out.why}});
  print_json({{"target", rewriting.to},
              {"format", to_string(result.format)},
              {"tensors", result.tensors},
              {"objects", result.objects},
              {"files", result.files},
              {"bytes", result.bytes},
              {"objects_as_json", result.objects_as_json},
              {"of_each_rank", result.of_each_rank},
              {"damaged", damaged}});
}

}  // namespace

void add_source(CLI::App& parser, Rewriting& rewriting) {
  rewriting.from.resize(1);
  parser.add_option("from", rewriting.from.front(), "a checkpoint of any format")
      ->required()
      ->type_name(kCheckpointWord);
}

void add_source_and_target(CLI::App& parser, Rewriting& rewriting) {
  add_source(parser, rewriting);
  parser.add_option("to", rewriting.to, "a folder, or a file .safetensors or .pt")->required()->type_name(kPathWord);
}

void add_name_options(CLI::App& parser, Rewriting& rewriting) {
  parser.add_option("--only", rewriting.only, "entries that this pattern matches (* is any text); may be repeated")
      ->type_name(kNameWord);
  parser.add_option("--drop", rewriting.drop, "leave these out; may be repeated")->type_name(kNameWord);
  parser.add_option("--rename", rewriting.rename, "\"model.*=net.*\"; may be repeated: one after the other")
      ->type_name("OLD=NEW");
}

void add_target_options(CLI::App& parser, Rewriting& rewriting) {
  parser.add_flag("--force", rewriting.force, "replace what is at the target, once the new one is complete");
  parser.add_flag("--no-verify", rewriting.no_verify, "take bytes as they are, without comparing digests");
  parser.add_flag("--json", rewriting.json, "print JSON");
}

int rewrite(const Verb& verb, const Rewriting& rewriting, RewriteOptions options) {
  std::vector<std::string> from;
  for (const std::string& path : rewriting.from) {
    const Location location = storage_for(verb.name, path);
    const std::shared_ptr<Storage> storage = is_on_disk(path) ? nullptr : location.storage;
    if (!from.empty() && storage != options.from_storage) {
      throw std::invalid_argument(ErrorText(verb.name, "checkpoints to merge lie in one place: a disk, or a bucket")
                                      .fact("one", rewriting.from.front())
                                      .fact("another", path)
                                      .help("sherd convert brings one to the other"));
    }
    options.from_storage = storage;
    from.push_back(location.path);
  }
  const Location to = storage_for(verb.name, rewriting.to);
  options.to_storage = is_on_disk(rewriting.to) ? nullptr : to.storage;
  options.operation = verb.name;
  options.format = format_named(verb, rewriting.format);
  options.overwrite = rewriting.force;
  options.verify = !rewriting.no_verify;
  if (!rewriting.file_size.empty()) options.file_bytes = parse_bytes(verb.name, rewriting.file_size);
  options.only = rewriting.only;
  options.drop = rewriting.drop;
  options.rename = renamings_of(verb, rewriting.rename);
  ProgressBar bar(verb.name);
  options.progress = bar.callback();
  const RewriteResult result = rewrite_checkpoint(from, to.path, options);
  rewriting.json ? print_json_report(rewriting, result) : print_report(rewriting, result);
  return result.damaged.empty() ? kOk : kDifference;
}

int64_t parse_bytes(const std::string& verb, const std::string& text) {
  static const std::vector<std::pair<std::string, double>> kUnits = {
      {"", 1},      {"B", 1},         {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", std::pow(2.0, 40)}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  std::erase(unit, ' ');
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * factor;
    if (unit == name && end != text.c_str() && bytes >= 1 && bytes < 9e18) return static_cast<int64_t>(bytes);
  }
  throw std::invalid_argument(
      ErrorText(verb, "this is no number of bytes").fact("found", text).help("5GB, 512MiB or 5000000000"));
}

}  // namespace sherd::tools
