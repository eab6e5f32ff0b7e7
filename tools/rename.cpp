// sherd rename: a checkpoint with other names.

#include "rewriting.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd rename gpt.safetensors renamed.safetensors \"transformer.*=model.*\" \"*.gamma=*.weight\"\n"
    "  sherd rename runs/gpt/step-4000 runs/gpt/step-4000 \"module.*=*\" --force\n";

}  // namespace

int rename(const Verb& verb, const Arguments& arguments) {
  Rewriting rewriting;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  add_source_and_target(parser, rewriting);
  parser.add_option("names", rewriting.rename, "\"model.*=net.*\", one after the other")
      ->required()
      ->type_name("OLD=NEW");
  add_target_options(parser, rewriting);
  if (const auto code = parse(parser, verb, arguments)) return *code;
  return rewrite(verb, rewriting);
}

}  // namespace sherd::tools
