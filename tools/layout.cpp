// sherd layout: which part of a tensor each rank holds.

#include "sherd/layout.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "location.h"
#include "sherd/picture.h"
#include "terminal.h"
#include "verb.h"
#include "write_file.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd layout \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd layout \"f32[10@0]\" --mesh \"[4]\" --json\n"
    "  sherd layout \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\" --svg layout.svg\n";

std::string boxes_text(const std::vector<Box>& boxes) {
  if (boxes.empty()) return "nothing";
  std::string text;
  for (const Box& box : boxes) text.append(text.empty() ? "" : " ").append(to_string(box));
  return text;
}

void print_text(const TensorText& tensor, const Layout& layout, bool color) {
  fmt::print("{} on {}\n", to_string(tensor, layout.mesh), to_string(layout.mesh));
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    const Dims at = layout.mesh.coordinate_at(i);
    fmt::print("  rank {} at {}: local {} = {}\n", layout.mesh.rank_at(at), to_string(at),
               to_string(local_shape(layout, at)), boxes_text(local_boxes(layout, at)));
  }
  fmt::print("\n{}", draw_text(layout, {.color = color}));
}

void print_json(const TensorText& tensor, const Layout& layout) {
  using nlohmann::json;
  json ranks = json::array();
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    const Dims at = layout.mesh.coordinate_at(i);
    json boxes = json::array();
    for (const Box& box : local_boxes(layout, at)) boxes.push_back({{"offset", box.offset}, {"size", box.size}});
    ranks.push_back({{"rank", layout.mesh.rank_at(at)},
                     {"coordinate", at},
                     {"local_shape", local_shape(layout, at)},
                     {"boxes", boxes}});
  }
  const json whole = {{"tensor", to_string(tensor, layout.mesh)},
                      {"mesh", to_string(layout.mesh)},
                      {"shape", tensor.shape},
                      {"placements", to_string(tensor.placements)},
                      {"ranks", ranks}};
  fmt::print("{}\n", whole.dump(2));
}

// To a file that is not there yet, or to standard output.
void put(const Verb& verb, const std::string& path, bool force, const std::string& bytes) {
  if (path == "-") {
    fmt::print("{}", bytes);
    return;
  }
  const Location target = storage_for(verb.name, path);
  refuse_existing(verb.name, target, path, force);
  write_file(target, bytes);
}

}  // namespace

int layout(const Verb& verb, const Arguments& arguments) {
  std::string tensor_text, mesh_text;
  std::string svg, html, color = "auto";
  bool as_json = false, force = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("tensor", tensor_text, "a tensor: f32[64@dp, 32@tp]")->required();
  parser.add_option("--mesh", mesh_text, "the mesh: [dp=2, tp=4]")->required();
  parser.add_flag("--json", as_json, "print JSON");
  parser.add_option("--svg", svg, "write the picture to scale; - is standard output")->type_name(kFileWord);
  parser.add_option("--html", html, "write a page that needs no other file; - is standard output")
      ->type_name(kFileWord);
  parser.add_flag("--force", force, "replace a file that is there");
  parser.add_option("--color", color, "colours in the terminal (auto: where it is one, unless NO_COLOR is set)")
      ->type_name("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Mesh mesh = parse_mesh(mesh_text);
  TensorText tensor = parse_tensor(tensor_text, mesh);
  const Layout layout{mesh, tensor.shape, checked_placements(verb.name, mesh, tensor.shape, tensor.placements)};
  if (!svg.empty()) put(verb, svg, force, draw_svg(layout));
  if (!html.empty()) {
    const std::vector<TitledLayout> one = {{to_string(tensor, mesh), layout}};
    put(verb, html, force, draw_html(one));
  }
  if (as_json)
    print_json(tensor, layout);
  else if (svg.empty() && html.empty())
    print_text(tensor, layout, color == "always" || (color == "auto" && has_color(stdout)));
  return kOk;
}

}  // namespace sherd::tools
