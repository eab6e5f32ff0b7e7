// sherd layout: which part of a tensor each rank holds.

#include "sherd/layout.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "sherd/picture.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd layout \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd layout \"f32[10@0]\" --mesh \"[4]\" --json\n";

std::string boxes_text(const std::vector<Box>& boxes) {
  if (boxes.empty()) return "nothing";
  std::string text;
  for (const Box& box : boxes) text.append(text.empty() ? "" : " ").append(to_string(box));
  return text;
}

void print_text(const TensorText& tensor, const Layout& layout) {
  fmt::print("{} on {}\n", to_string(tensor, layout.mesh), to_string(layout.mesh));
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    const Dims at = layout.mesh.coordinate_at(i);
    fmt::print("  rank {} at {}: local {} = {}\n", layout.mesh.rank_at(at), to_string(at),
               to_string(local_shape(layout, at)), boxes_text(local_boxes(layout, at)));
  }
  fmt::print("\n{}", draw_text(layout, {.color = ::isatty(STDOUT_FILENO) != 0}));
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

}  // namespace

int layout(const Verb& verb, const Arguments& arguments) {
  std::string tensor_text, mesh_text;
  bool as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("tensor", tensor_text, "a tensor: f32[64@dp, 32@tp]")->required();
  parser.add_option("--mesh", mesh_text, "the mesh: [dp=2, tp=4]")->required();
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Mesh mesh = parse_mesh(mesh_text);
  TensorText tensor = parse_tensor(tensor_text, mesh);
  const Layout layout{mesh, tensor.shape, checked_placements(verb.name, mesh, tensor.shape, tensor.placements)};
  as_json ? print_json(tensor, layout) : print_text(tensor, layout);
  return kOk;
}

}  // namespace sherd::tools
