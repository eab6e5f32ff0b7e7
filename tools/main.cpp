// sherd: the command. A table of verbs over library calls; none of them loads libtorch.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "sherd/error.h"
#include "verb.h"

namespace sherd::tools {
namespace {

// clang-format off
constexpr Verb kVerbs[] = {
    {"run",     "-n RANKS -- PROGRAM [ARGUMENT...]",  "start the ranks of a program as processes",       run},
    {"layout",  "TENSOR --mesh MESH",                 "show which part of a tensor each rank holds",     layout},
    {"calibrate", "-n RANKS",                         "measure what communication costs here",           calibrate},
    {"explain", "OPERATOR TENSOR... --mesh MESH",     "show how an operator is sharded, and what moves", explain},
};
// clang-format on

constexpr const char* kExamples =
    "examples:\n"
    "  sherd run -n 4 -- ./train --config gpt.json\n"
    "  sherd layout \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd explain mm \"f32[64, 32@tp]\" \"f32[32@tp, 16]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd run --help\n";

std::string usage() {
  std::string text = "usage: sherd VERB ...\n\nverbs:\n";
  for (const Verb& verb : kVerbs) text += fmt::format("  {:<11}{:<36}{}\n", verb.name, verb.arguments, verb.summary);
  return text + "\noptions:\n  --help      this text; `sherd VERB --help` for one verb\n  --version\n\n" + kExamples;
}

/// CLI11's help with our own usage line: its own has the arguments in a fixed order.
class VerbHelp : public CLI::Formatter {
 public:
  explicit VerbHelp(const Verb& verb) : verb_(verb) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("usage: sherd {} {}\n", verb_.name, verb_.arguments);
  }

 private:
  const Verb& verb_;
};

int fail(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
  return kBadUsage;
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) return fail(ErrorText("sherd", "no verb given").help("sherd --help"));
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") return fmt::print("{}", usage()), kOk;
  if (name == "--version") return fmt::print("sherd {}\n", SHERD_VERSION), kOk;
  for (const Verb& verb : kVerbs)
    if (name == verb.name) return verb.run(verb, {arguments.begin() + 1, arguments.end()});
  std::string known;
  for (const Verb& verb : kVerbs) known.append(known.empty() ? "" : ", ").append(verb.name);
  return fail(ErrorText("sherd", "no such verb").fact("verb", name).fact("verbs", known).help("sherd --help"));
}

}  // namespace

void make_parser(CLI::App& parser, const Verb& verb, const char* examples) {
  parser.formatter(std::make_shared<VerbHelp>(verb));
  parser.footer(std::string("examples:\n") + examples);
  parser.set_help_flag("-h,--help", "this text");
}

std::optional<int> parse(CLI::App& parser, const Verb& verb, Arguments arguments) {
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a stack
    parser.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return parser.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorText(verb.name, error.what()).help(fmt::format("sherd {} --help", verb.name)));
  }
}

}  // namespace sherd::tools

int main(int argc, char** argv) {
  using namespace sherd::tools;
  try {
    return dispatch(Arguments(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
