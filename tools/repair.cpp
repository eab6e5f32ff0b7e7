// sherd repair: what can be saved from a damaged checkpoint.

#include "rewriting.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd repair runs/gpt/step-4000 runs/gpt/step-4000-repaired\n"
    "  sherd repair broken.pt whole.pt --json\n";

}  // namespace

int repair(const Verb& verb, const Arguments& arguments) {
  Rewriting rewriting;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  add_source_and_target(parser, rewriting);
  add_target_options(parser, rewriting);
  if (const auto code = parse(parser, verb, arguments)) return *code;
  return rewrite(verb, rewriting, {.skip_damaged = true});
}

}  // namespace sherd::tools
