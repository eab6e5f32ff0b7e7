// sherd merge: several checkpoints as one.

#include "rewriting.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd merge model.safetensors optimizer.pt gpt\n"
    "  sherd merge lora base merged.safetensors --drop \"*.step\"\n";

}  // namespace

int merge(const Verb& verb, const Arguments& arguments) {
  Rewriting rewriting;
  std::vector<std::string> paths;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("paths", paths, "checkpoints of any format, then the target")
      ->required()
      ->expected(3, 1 << 20)
      ->type_name(kCheckpointWord);
  parser.add_option("--format", rewriting.format, "where the name of the target does not say it")
      ->type_name("dcp|safetensors|torch.save");
  add_name_options(parser, rewriting);
  add_target_options(parser, rewriting);
  if (const auto code = parse(parser, verb, arguments)) return *code;
  rewriting.to = paths.back();
  paths.pop_back();
  rewriting.from = std::move(paths);
  return rewrite(verb, rewriting);
}

}  // namespace sherd::tools
