// sherd convert: a checkpoint in another format.

#include "rewriting.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd convert runs/gpt/step-4000 gpt.safetensors --only \"model.*\" --rename \"model.*=*\"\n"
    "  sherd convert gpt.pt gpt\n"
    "  sherd convert runs/gpt/step-4000 gpt-hf --format safetensors --max-file-size 2GB\n"
    "  sherd convert runs/gpt/step-4100-incremental whole\n";

}  // namespace

int convert(const Verb& verb, const Arguments& arguments) {
  Rewriting rewriting;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  add_source_and_target(parser, rewriting);
  parser.add_option("--format", rewriting.format, "where the name of the target does not say it")
      ->type_name("dcp|safetensors|torch.save");
  parser
      .add_option("--max-file-size", rewriting.file_size, "safetensors: a folder of files up to this size and an index")
      ->type_name("BYTES");
  add_name_options(parser, rewriting);
  add_target_options(parser, rewriting);
  if (const auto code = parse(parser, verb, arguments)) return *code;
  return rewrite(verb, rewriting);
}

}  // namespace sherd::tools
