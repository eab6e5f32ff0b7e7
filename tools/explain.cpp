// sherd explain: what an operator does to sharded operands, and what that moves.

#include "sherd/explain.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sherd/error.h"
#include "verb.h"

namespace sherd::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples =
    "  sherd explain mm \"f32[64, 32@tp]\" \"f32[32@tp, 16]\" --mesh \"[dp=2, tp=4]\"\n"
    "  sherd explain sum \"f32[64@dp, 32] P(sum)@tp\" --arg dim=1 --mesh \"[dp=2, tp=4]\"\n"
    "  sherd explain view \"f32[8@dp, 6]\" --arg size=[2,4,6] --mesh \"[dp=2]\"\n"
    "  sherd explain native_layer_norm \"f32[8@dp, 6]\" \"f32[6]\" - --arg normalized_shape=[6] --mesh \"[dp=2]\"\n"
    "  sherd explain redistribute \"f32[64@tp, 32]\" \"f32[64, 32@tp]\" --mesh \"[tp=4]\"\n"
    "  sherd explain redistribute \"f32[64, 32] P(sum)@tp\" \"f32[64@dp, 32]\" --mesh \"[tp=4]\" --to-mesh "
    "\"[dp=2]\"\n"
    "  sherd explain redistribute \"f32[64, 32] P(sum)@tp\" \"f32[64, 32]\" --mesh \"[dp=2, tp=4]\" --prefer bytes\n"
    "  sherd explain mylib::ffn \"f32[8, 6@tp]\" \"f32[6@tp, 4]\" --rule \"b d, d f -> b f | reduce d\" --mesh "
    "\"[tp=2]\"\n";

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse_argument(const std::string& text) {
  throw std::invalid_argument(
      ErrorText("explain", "--arg is not NAME=VALUE")
          .fact("--arg", text)
          .help("--arg dim=1, --arg keepdim=true, --arg size=[4,8], --arg p=0.5, --arg dim=none"));
}

ArgumentValue parse_value(const std::string& text, std::string_view value) {
  if (value == "true") return true;
  if (value == "false") return false;
  if (value == "none") return std::monostate();
  if (const auto number = whole_number<int64_t>(value)) return *number;
  if (const auto real = whole_number<double>(value)) return *real;
  if (!value.starts_with('[')) return std::string(value);
  if (!value.ends_with(']')) refuse_argument(text);
  value = value.substr(1, value.size() - 2);
  Dims list;
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    std::string_view entry = value.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    const auto number = whole_number<int64_t>(entry);
    if (!number) refuse_argument(text);
    list.push_back(*number);
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return list;
}

std::pair<std::string, ArgumentValue> parse_argument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) refuse_argument(text);
  return {text.substr(0, equals), parse_value(text, std::string_view(text).substr(equals + 1))};
}

Json steps_json(const std::vector<Explanation::Step>& steps) {
  Json list = Json::array();
  for (const Explanation::Step& step : steps) list.push_back({{"step", step.text}, {"bytes", step.bytes}});
  return list;
}

const char* source_name(Explanation::Source source) {
  switch (source) {
    case Explanation::Source::table:
      return "table";
    case Explanation::Source::computed:
      return "computed from shapes";
    case Explanation::Source::yours:
      return "yours";
    case Explanation::Source::none:
      break;
  }
  return "none";
}

Json axes_json(const Explanation& e) {
  Json axes = Json::array();
  for (size_t i = 0; i < e.axes.size(); ++i) {
    const Explanation::Axis& axis = e.axes[i];
    Json one = {{"axis", e.mesh.axis_label(static_cast<int64_t>(i))},
                {"factor", axis.factor.empty() ? Json() : Json(axis.factor)},
                {"partial_operands", axis.partial_operands},
                {"output_is_part", Json()}};
    if (axis.output_is_part) one["output_is_part"] = to_string(*axis.output_is_part);
    axes.push_back(std::move(one));
  }
  return axes;
}

void print_json(const Explanation& e) {
  Json factors = Json::array();
  for (const auto& factor : e.factors) {
    factors.push_back({{"name", factor.name}, {"size", factor.size}, {"kind", factor.kind}});
  }
  Json operands = Json::array();
  for (const auto& operand : e.operands) {
    operands.push_back({{"tensor", operand.tensor ? Json(to_string(*operand.tensor, e.mesh)) : Json()},
                        {"placements", to_string(operand.placements)},
                        {"steps", steps_json(operand.steps)},
                        {"back", steps_json(operand.back)}});
  }
  Json outputs = Json::array();
  for (const auto& output : e.outputs) {
    outputs.push_back({{"tensor", to_string(output, e.mesh)}, {"placements", to_string(output.placements)}});
  }
  Json exchanges = Json::array();
  for (const auto& exchange : e.exchanges) {
    exchanges.push_back({{"exchange", exchange.text},
                         {"times", exchange.times},
                         {"bytes", exchange.bytes},
                         {"least_bytes", exchange.least}});
  }
  const Json whole = {{"operator", e.op},
                      {"mesh", to_string(e.mesh)},
                      {"source", source_name(e.source)},
                      {"rule", e.rule.empty() ? Json() : Json(e.rule)},
                      {"bound", e.bound.empty() ? Json() : Json(e.bound)},
                      {"factors", factors},
                      {"axes", axes_json(e)},
                      {"operands", operands},
                      {"along", e.along.empty() ? Json() : Json(e.along)},
                      {"exchanges", exchanges},
                      {"outputs", outputs},
                      {"bytes", e.bytes},
                      {"least_bytes", e.least},
                      {"bytes_by_rule", e.along.empty() ? e.bytes : e.bytes_by_rule}};
  fmt::print("{}\n", whole.dump(2));
}

// `redistribute` is no operator of torch: its two tensors are where one is and where it shall be.
struct MoveQuestion {
  Mesh mesh;
  Mesh to_mesh;
  std::string prefer;
  bool as_json = false;
};

// The library's own: SHERD_COSTS, or the defaults.
CommCosts costs_of_environment() {
  const char* text = std::getenv("SHERD_COSTS");  // NOLINT(concurrency-mt-unsafe): there is one thread
  return text == nullptr || *text == '\0' ? CommCosts() : parse_costs(text);
}

int print_redistribution(const OperatorCall& call, const MoveQuestion& question) {
  const auto& [mesh, to_mesh, prefer, as_json] = question;
  if (call.operands.size() != 2 || !call.operands[0] || !call.operands[1]) {
    throw std::invalid_argument(
        ErrorText("explain", "redistribute needs two tensors: from and to")
            .fact("tensors", std::to_string(call.operands.size()))
            .help("sherd explain redistribute \"f32[64@tp, 32]\" \"f32[64, 32@tp]\" --mesh \"[tp=4]\""));
  }
  const TensorText& from = *call.operands[0];
  const TensorText& to = *call.operands[1];
  PlanPreferences preferences{.costs = costs_of_environment()};
  if (prefer == "bytes") preferences.prefer = PlanPreferences::Prefer::bytes;
  if (prefer == "latency") preferences.prefer = PlanPreferences::Prefer::latency;
  const std::string plan = explain_redistribution(from, mesh, to, to_mesh, preferences);
  if (as_json) {
    Json json = {{"op", call.op}, {"from", to_string(from, mesh)}, {"to", to_string(to, to_mesh)}, {"plan", plan}};
    if (mesh != to_mesh) json["to_mesh"] = to_string(to_mesh);
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("redistribute  {} -> {}\n  {}\n", to_string(from, mesh), to_string(to, to_mesh), plan);
  }
  return kOk;
}

}  // namespace

int explain(const Verb& verb, const Arguments& arguments) {
  OperatorCall call;
  std::string mesh_text, to_mesh_text, prefer;
  std::vector<std::string> tensors, plain;
  bool as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("operator", call.op, "its name in torch: mm, add_, max.dim, mylib::ffn")->required();
  parser.add_option("tensors", tensors, "its tensors, in order: \"f32[64, 32@tp]\"; - for one that is left out");
  parser.add_option("--mesh", mesh_text, "the mesh: [dp=2, tp=4]")->required();
  parser.add_option("--to-mesh", to_mesh_text, "of redistribute: the mesh of the second tensor, where it is another");
  parser
      .add_option("--prefer", prefer, "of redistribute: the fewest bytes, or the least time by SHERD_COSTS (by size)")
      ->check(CLI::IsMember({"bytes", "latency"}));
  parser.add_option("--arg", plain, "another argument: dim=1, keepdim=true, size=[4,8]")
      ->allow_extra_args(false)
      ->delimiter('\0');
  parser.add_option("--rule", call.rule, "a rule to try instead of the operator's own (docs/rules.md)");
  parser.add_option("--outputs", call.outputs, "how many tensors it returns (as many as the rule has)")
      ->check(CLI::Range(1, 64).description(""));
  parser.add_flag("--in-place", call.in_place, "the result is written to tensor 0, as for a name that ends in _");
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Mesh mesh = parse_mesh(mesh_text);
  const Mesh to_mesh = to_mesh_text.empty() ? mesh : parse_mesh(to_mesh_text);
  if (!to_mesh_text.empty() && call.op != "redistribute") {
    throw std::invalid_argument(ErrorText("explain", "--to-mesh is for redistribute: operators stay on one mesh")
                                    .fact("operator", call.op)
                                    .help("leave --to-mesh away"));
  }
  if (!prefer.empty() && call.op != "redistribute") {
    throw std::invalid_argument(ErrorText("explain", "--prefer is for redistribute: operators choose by bytes alone")
                                    .fact("operator", call.op)
                                    .help("leave --prefer away"));
  }
  for (const std::string& text : tensors) {
    const Mesh& on = call.operands.empty() ? mesh : to_mesh;
    call.operands.push_back(text == "-" ? std::nullopt : std::optional(parse_tensor(text, on)));
  }
  if (call.op == "redistribute") return print_redistribution(call, {mesh, to_mesh, prefer, as_json});
  for (const std::string& text : plain) call.arguments.push_back(parse_argument(text));
  const Explanation explanation = sherd::explain(call, mesh);
  as_json ? print_json(explanation) : fmt::print("{}", to_string(explanation));
  return kOk;
}

}  // namespace sherd::tools
