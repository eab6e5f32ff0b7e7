// sherd reshard: a checkpoint as other ranks would have written it.

#include <fmt/format.h>

#include <stdexcept>

#include "rewriting.h"
#include "sherd/error.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd reshard runs/gpt/step-4000 on-3 --ranks 3\n"
    "  sherd reshard runs/gpt/step-4000 on-2x2 --mesh \"[dp=2, tp=2]\" --placements \"(S(0), S(1))\"\n"
    "  sherd reshard gpt.safetensors gpt --mesh \"[tp=4]\" --placements \"*.weight=(S(0))\"\n";

std::vector<std::pair<std::string, Placements>> parse_placed(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, Placements>> placed;
  for (const std::string& text : texts) {
    // "(S(0), R)" has an equals sign in "S(0, split=2)": what is before the first bracket tells.
    const size_t equals = text.find('=');
    const bool named = equals < text.find('(');
    placed.push_back({named ? text.substr(0, equals) : "*", parse_placements(named ? text.substr(equals + 1) : text)});
  }
  return placed;
}

}  // namespace

int reshard(const Verb& verb, const Arguments& arguments) {
  Rewriting rewriting;
  int64_t ranks = 0;
  std::string mesh_text;
  std::vector<std::string> placement_texts;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  add_source(parser, rewriting);
  parser.add_option("to", rewriting.to, "a folder")->required()->type_name(kFolderWord);
  parser.add_option("--ranks", ranks, "every tensor cut along its first dim over so many ranks");
  parser.add_option("--mesh", mesh_text, "the ranks as a mesh: [dp=2, tp=4]")->type_name("MESH");
  parser
      .add_option(
          "--placements", placement_texts,
          "\"(S(0), R)\", one per axis, or \"*.weight=(R, S(1))\" for some names, the first that matches; others "
          "are replicated, and so is a tensor without the dim; may be repeated")
      ->type_name("PLACEMENTS");
  add_name_options(parser, rewriting);
  add_target_options(parser, rewriting);
  if (const auto code = parse(parser, verb, arguments)) return *code;

  if ((ranks != 0) == !mesh_text.empty() || mesh_text.empty() != placement_texts.empty()) {
    throw std::invalid_argument(ErrorText(verb.name, "either --ranks, or --mesh with --placements")
                                    .help(fmt::format("sherd {} --help", verb.name)));
  }
  RewriteOptions options;
  options.layouts =
      mesh_text.empty() ? sharded_over(ranks) : laid_out(parse_mesh(mesh_text), parse_placed(placement_texts));
  rewriting.format = "dcp";
  return rewrite(verb, rewriting, options);
}

}  // namespace sherd::tools
