// sherd verify: whether a checkpoint is whole.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "location.h"
#include "name_filter.h"
#include "plan/redistribute.h"
#include "progress_bar.h"
#include "sherd/inspect.h"
#include "terminal.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd verify runs/gpt/step-4000\n"
    "  sherd verify runs/gpt/step-4000 && cp -r runs/gpt/step-4000 backup\n"
    "  sherd verify model.safetensors --json\n";

Json to_json(const std::string& path, const VerifyResult& result) {
  Json damage = Json::array();
  for (const Damage& one : result.damage) {
    damage.push_back({{"problem", one.problem},
                      {"file", one.file.empty() ? Json() : Json(one.file)},
                      {"begin", one.bytes ? Json(one.bytes->begin) : Json()},
                      {"end", one.bytes ? Json(one.bytes->end) : Json()},
                      {"names", one.names},
                      {"detail", one.detail}});
  }
  return {{"path", path},
          {"format", result.format},
          {"whole", result.damage.empty()},
          {"tensors", result.tensors},
          {"objects", result.objects},
          {"files", result.files},
          {"bytes_read", result.bytes},
          {"digests_compared", result.digests},
          {"crcs_compared", result.crcs},
          {"unchecked_files", result.unchecked},
          {"damage", std::move(damage)}};
}

void print_text(const std::string& path, const VerifyResult& result) {
  const bool color = has_color(stdout);
  for (const Damage& damage : result.damage) {
    fmt::print("{} {}\n", styled("damaged:", Style::red, color), to_string(damage));
    if (!damage.detail.empty()) fmt::print("         {}\n", styled(damage.detail, Style::dim, color));
  }
  const bool whole = result.damage.empty();
  fmt::print("{}  {}, {}, {}, {}: {} read, {} and {} compared\n",
             styled(whole ? "whole:  " : "damaged:", whole ? Style::green : Style::red, color) + " " + path,
             result.format.empty() ? "unknown format" : result.format, counted(result.tensors, "tensor"),
             counted(result.objects, "object"), counted(result.files, "file"), plan::bytes_text(result.bytes),
             counted(result.digests, "digest"), counted(result.crcs, "CRC"));
  if (!result.unchecked.empty()) {
    fmt::print("note: {} {} nothing to compare bytes with; lengths and places were compared\n",
               counted(static_cast<int64_t>(result.unchecked.size()), "file"),
               result.unchecked.size() == 1 ? "has" : "have");
  }
}

}  // namespace

int verify(const Verb& verb, const Arguments& arguments) {
  std::string path;
  size_t threads = 0;
  bool as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("checkpoint", path, "a folder or a file")->required()->type_name(kCheckpointWord);
  parser.add_option("--threads", threads, "that read at once (as many as there are cores)")->type_name("N");
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Location where = storage_for(verb.name, path);
  VerifyResult result;
  {
    ProgressBar bar(verb.name);
    result = verify_checkpoint(
        where.path, {.storage = where.storage, .operation = verb.name, .progress = bar.callback(), .threads = threads});
  }
  if (as_json) {
    print_json(to_json(path, result));
  } else {
    print_text(path, result);
  }
  if (result.damage.empty()) return kOk;
  std::fflush(stdout);
  fmt::print(stderr, "verify: the checkpoint is damaged: {} found\n",
             counted(static_cast<int64_t>(result.damage.size()), "fault"));
  return kDifference;
}

}  // namespace sherd::tools
