// sherd xla: a layout as XLA writes it, and back.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/xla_sharding.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd xla \"f32[64@dp, 32@tp]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd xla \"f32[64, 32]\" --mesh \"[dp=2, tp=4]\" --from \"{devices=[2,4]<=[8]}\"\n";

bool cuts_or_reduces(const Placements& placements) {
  for (const Placement& placement : placements)
    if (!is_replicate(placement)) return true;
  return false;
}

}  // namespace

int xla(const Verb& verb, const Arguments& arguments) {
  std::string tensor_text, mesh_text, from;
  bool as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("tensor", tensor_text, "a tensor: f32[64@dp, 32@tp]")->required();
  parser.add_option("--mesh", mesh_text, "the mesh: [dp=2, tp=4]; its ranks are XLA's devices")->required();
  parser.add_option("--from", from, "a sharding to read, as HLO writes it: {devices=[2,4]<=[8]}");
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Mesh mesh = parse_mesh(mesh_text);
  TensorText tensor = parse_tensor(tensor_text, mesh);
  XlaSharding sharding;
  if (from.empty()) {
    sharding = xla_sharding({mesh, tensor.shape, tensor.placements});
  } else {
    if (cuts_or_reduces(tensor.placements))
      throw std::invalid_argument(
          ErrorText(verb.name, "with --from, the sharding says how the tensor is cut, not its text")
              .fact("tensor", tensor_text)
              .help(fmt::format(
                  "sherd xla \"{}\" --mesh \"{}\" --from \"{}\"",
                  to_string(TensorText{tensor.dtype, tensor.shape, Placements(tensor.placements.size(), Replicate())},
                            mesh),
                  to_string(mesh), from)));
    sharding = parse_xla_sharding(from);
    tensor.placements = placements_of(sharding, mesh, tensor.shape);
  }
  if (as_json) {
    print_json({{"tensor", to_string(tensor, mesh)},
                {"mesh", to_string(mesh)},
                {"placements", to_string(tensor.placements)},
                {"sharding", to_string(sharding)}});
  } else {
    fmt::print("{}\n", from.empty() ? to_string(sharding) : to_string(tensor, mesh));
  }
  return kOk;
}

}  // namespace sherd::tools
