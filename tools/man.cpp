// sherd man: the page sherd(1), from the verbs' own parsers.

#include <fmt/format.h>

#include "describe.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd man | man -l -\n"
    "  sherd man > sherd.1\n";

// A dash is one that can be pasted; a line that begins with a point would be a command.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string option_page(const OptionDescription& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
  std::string text = ".TP\n";
  text += names.empty() ? fmt::format("\\fI{}\\fR\n", roff(option.word))
                        : fmt::format("\\fB{}\\fR{}\n", roff(names),
                                      option.word.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(option.word)));
  return text + roff(option.help) + "\n";
}

std::string verb_page(const VerbDescription& one) {
  std::string text =
      fmt::format(".SS sherd {} {}\n{}\n", roff(one.verb.name), roff(one.verb.arguments), roff(one.verb.summary));
  for (const OptionDescription& place : one.places) text += option_page(place);
  for (const OptionDescription& option : one.options) text += option_page(option);
  return text + fmt::format(".PP\n.nf\n{}\n.fi\n", roff(one.footer));
}

}  // namespace

int man(const Verb& verb, const Arguments& arguments) {
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  if (const auto code = parse(parser, verb, arguments)) return *code;
  fmt::print(
      ".TH SHERD 1 \"\" \"sherd {}\" \"User Commands\"\n"
      ".SH NAME\nsherd \\- checkpoints and sharded tensors, without Python\n"
      ".SH SYNOPSIS\n\\fBsherd\\fR \\fIVERB\\fR ...\n.br\n\\fBsherd help\\fR \\fIVERB\\fR\n"
      ".SH DESCRIPTION\n"
      "Looks at checkpoints, checks, compares and changes them, whoever wrote them: PyTorch's distributed "
      "checkpoints,\n"
      "safetensors, files of torch.save. Starts the ranks of programs, and explains layouts of sharded tensors.\n"
      "A checkpoint is a folder or a file, or one in an object store: \\fIs3://bucket/key\\fR.\n",
      SHERD_VERSION);
  for (const VerbGroup& group : verb_groups()) {
    std::string title = group.title;
    for (char& c : title) c = static_cast<char>(std::toupper(c));
    fmt::print(".SH {}\n", roff(title));
    for (const Verb& one : group.verbs) fmt::print("{}", verb_page(describe(one)));
  }
  fmt::print(
      ".SH EXIT STATUS\n"
      "0 for success; 1 where checkpoints differ or one is damaged; 2 for bad usage and for what could not be done;\n"
      "130 after Ctrl\\-C, which leaves nothing half written.\n"
      ".SH ENVIRONMENT\n"
      ".TP\n\\fBNO_COLOR\\fR\nno colours, on a terminal too\n"
      ".TP\n\\fBCOLUMNS\\fR\nthe width of the terminal\n"
      ".TP\n\\fBAWS_ENDPOINT_URL_S3\\fR, \\fBAWS_REGION\\fR, \\fBAWS_ACCESS_KEY_ID\\fR, \\fBAWS_SECRET_ACCESS_KEY\\fR\n"
      "for s3:// paths, as AWS's own programs read them\n");
  return kOk;
}

}  // namespace sherd::tools
