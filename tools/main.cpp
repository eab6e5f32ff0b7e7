// sherd: the command. A table of verbs over library calls; none of them loads libtorch.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "interrupt.h"
#include "roomy_heap.h"
#include "sherd/damage.h"
#include "sherd/error.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kNotWritten = "the output could not be written";

constexpr const char* kExamples =
    "examples:\n"
    "  sherd inspect runs/gpt/step-4000\n"
    "  sherd diff runs/gpt/step-3000 runs/gpt/step-4000\n"
    "  sherd run -n 4 -- ./train --config gpt.json\n"
    "  sherd layout \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd explain mm \"f32[64, 32@tp]\" \"f32[32@tp, 16]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd help run\n";

std::string usage() {
  std::string text = "usage: sherd VERB ...\n";
  for (const VerbGroup& group : verb_groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const Verb& verb : group.verbs) {
      text += fmt::format("  {:<11}{:<36}{}\n", verb.name, verb.arguments, verb.summary);
    }
  }
  return text +
         "\noptions:\n"
         "  --help     this text; `sherd VERB --help` or `sherd help VERB` for one verb\n"
         "  --version  the version, the formats, and how it was built\n"
         "\nexit codes: 0 success, 1 a difference or damage, 2 bad usage or what could not be done\n\n" +
         kExamples;
}

std::string version() {
  return fmt::format(
      "sherd {}\n"
      "formats: PyTorch's distributed checkpoints (with sherd.manifest), safetensors, torch.save\n"
      "build: {}, {}, {}, {}\n",
      SHERD_VERSION, SHERD_SYSTEM, SHERD_COMPILER, SHERD_BUILD_TYPE, SHERD_PARTS);
}

/// CLI11's help with our own usage line: its own has the arguments in a fixed order.
class VerbHelp : public CLI::Formatter {
 public:
  explicit VerbHelp(const Verb& verb) : verb_(verb) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("usage: sherd {} {}\n", verb_.name, verb_.arguments);
  }
  /// "CKPT", without the notes that CLI11 adds of what is allowed and what excludes what.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string word = option->get_type_size() == 0 ? "" : option->get_type_name();
    return word.empty() ? "" : " " + word.substr(0, word.find(':'));
  }

 private:
  const Verb& verb_;
};

int fail(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
  return kBadUsage;
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) return fail(ErrorText("sherd", "no verb given").help("sherd --help"));
  if (arguments.front() == "help" && arguments.size() > 1) arguments = {arguments[1], "--help"};
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") return fmt::print("{}", usage()), kOk;
  if (name == "--version") return fmt::print("{}", version()), kOk;
  std::string known;
  for (const VerbGroup& group : verb_groups()) {
    for (const Verb& verb : group.verbs) {
      if (name == verb.name) return verb.run(verb, {arguments.begin() + 1, arguments.end()});
      known.append(known.empty() ? "" : ", ").append(verb.name);
    }
  }
  return fail(ErrorText("sherd", "no such verb").fact("verb", name).fact("verbs", known).help("sherd --help"));
}

}  // namespace

void make_parser(CLI::App& parser, const Verb& verb, const char* examples) {
  parser.formatter(std::make_shared<VerbHelp>(verb));
  parser.footer(std::string("examples:\n") + examples);
  parser.set_help_flag("-h,--help", "this text");
}

std::optional<int> parse(CLI::App& parser, const Verb& verb, Arguments arguments) {
  if (verb.look != nullptr) return (*verb.look)(parser), kOk;
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

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::detail::error_handler_t::replace));
}

}  // namespace sherd::tools

int main(int argc, char** argv) {
  using namespace sherd::tools;
  make_heap_roomy();
  const std::string verb = argc > 1 && argv[1][0] != '-' ? argv[1] : "sherd";
  // Texts of the library's depths begin with what failed there: here it is the verb that failed.
  const auto text_of = [&](const std::exception& error) {
    const std::string text = error.what();
    return text.starts_with(verb + ":") ? text : verb + ": " + text;
  };
  try {
    const int code = dispatch(Arguments(argv + 1, argv + argc));
    // A full disk behind a redirected output is seen here at the latest.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return fail(sherd::ErrorText(verb, kNotWritten));
  } catch (const std::system_error&) {  // fmt::print
    return fail(sherd::ErrorText(verb, kNotWritten));
  } catch (const Interrupted& signal) {
    fmt::print(stderr, "{}: interrupted; nothing was left half written\n", verb);
    return signal.exit_code();
  } catch (const sherd::DamagedCheckpoint& error) {
    fail(text_of(error));
    return kDifference;
  } catch (const std::exception& error) {
    return fail(text_of(error));
  }
}
