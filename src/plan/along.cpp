#include "plan/along.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "plan/along_tools.h"
#include "plan/redistribute.h"
#include "rules/registry.h"
#include "sherd/error.h"

namespace sherd::plan {
namespace {

bool names(std::string_view ops, std::string_view name) {
  for (size_t at = 0; at < ops.size();) {
    const size_t end = std::min(ops.find(' ', at), ops.size());
    if (ops.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

// Elements that the rank at a coordinate receives in a step.
int64_t received(const Step& step, const Held& before, const Held& after, const Dims& coordinate) {
  int64_t n = 1;
  for (const int64_t axis : step.axes) n *= before.layout().mesh.size(axis);
  switch (step.action) {
    case Action::all_reduce:
      return 2 * numel(before.grid(coordinate)) * (n - 1) / n;
    case Action::reduce_scatter:
      return numel(after.grid(coordinate)) * (n - 1);
    case Action::exchange:
      return missing(before.grid(coordinate), after.grid(coordinate));
    case Action::slice:
    case Action::keep_one:
    case Action::cross:  // to another mesh: no operator does
    case Action::reduce_to:
      break;
  }
  return 0;
}

int64_t most_over(const Mesh& mesh, const std::function<int64_t(const Dims&)>& f) {
  int64_t most = 0;
  for (int64_t i = 0; i < mesh.size(); ++i) most = std::max(most, f(mesh.coordinate_at(i)));
  return most;
}

}  // namespace

int64_t element_size(const std::string& dtype) {
  if (dtype == "bool") return 1;
  const size_t digits = dtype.find_first_of("0123456789");
  int64_t bits = 0;
  if (digits != std::string::npos) std::from_chars(dtype.data() + digits, dtype.data() + dtype.size(), bits);
  const std::string kind = dtype.substr(0, digits);
  const bool known = kind == "f" || kind == "bf" || kind == "i" || kind == "u" || kind == "c";
  if (known && (bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128)) return bits / 8;
  throw std::invalid_argument(ErrorText("explain", "not a dtype")
                                  .fact("given", "\"" + dtype + "\"")
                                  .help("f32, f64, f16, bf16, f8e4m3fn, i64, i32, i8, u8, bool, c64"));
}

bool has_fraction(std::string_view dtype) {
  return dtype != "bool" && (dtype.starts_with("f") || dtype.starts_with("b") || dtype.starts_with("c"));
}

// Plans are compared by averages over a few ranks. People and tests are told what some rank really receives.
std::vector<Explanation::Step> steps_between(const Mesh& mesh, const TensorText& tensor, const Placements& to) {
  const int64_t size = element_size(tensor.dtype);
  std::vector<Explanation::Step> steps;
  Held before(mesh, tensor.shape, tensor.placements);
  for (const Step& step : plan_redistribution(mesh, tensor.shape, size, tensor.placements, to).steps) {
    Held after = before;
    after.become(step.after, step.cut);
    const auto here = [&](const Dims& coordinate) { return received(step, before, after, coordinate); };
    steps.push_back({to_string(step, mesh), most_over(mesh, here) * size});
    before = after;
  }
  return steps;
}

double Asked::real(std::string_view argument, double otherwise) const {
  const rules::PlainArgument* found = call.find(argument);
  if (found == nullptr) return otherwise;
  if (const auto* real = std::get_if<double>(&found->value)) return *real;
  return std::holds_alternative<int64_t>(found->value) ? static_cast<double>(std::get<int64_t>(found->value))
                                                       : otherwise;
}

bool Asked::is_cut(const TensorText& tensor, int64_t dim) const {
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.size(axis) > 1 && sharded_dim(tensor.placements[static_cast<size_t>(axis)]) == dim) return true;
  }
  return false;
}

bool Asked::any_cut(const TensorText& tensor, const Dims& dims) const {
  return std::any_of(dims.begin(), dims.end(), [&](int64_t d) { return is_cut(tensor, d); });
}

bool Asked::cut_anywhere(const TensorText& tensor) const {
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (is_cut(tensor, static_cast<int64_t>(d))) return true;
  }
  return false;
}

std::optional<int64_t> Asked::sharded(const TensorText& tensor, std::string_view argument, int64_t otherwise) const {
  const auto ndim = static_cast<int64_t>(tensor.shape.size());
  int64_t dim = call.integer(argument, otherwise);
  if (dim < 0) dim += ndim;
  return dim >= 0 && dim < ndim && is_cut(tensor, dim) ? std::optional(dim) : std::nullopt;
}

std::optional<Dims> Asked::dims(const TensorText& tensor, std::string_view argument) const {
  const auto ndim = static_cast<int64_t>(tensor.shape.size());
  Dims dims = call.list(argument).value_or(Dims());
  if (dims.empty()) {
    for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  }
  for (int64_t& d : dims) {
    if (d < 0) d += ndim;
    if (d < 0 || d >= ndim) return std::nullopt;
  }
  return dims;
}

std::optional<PieceRows> Asked::pieces(const TensorText& tensor, int64_t dim) const {
  return PieceRows::of({mesh, tensor.shape, tensor.placements}, dim);
}

int64_t Asked::most(const std::function<int64_t(const Dims&)>& received) const { return most_over(mesh, received); }

std::string Asked::labels(const std::vector<int64_t>& axes) const {
  std::string text;
  for (const int64_t axis : axes) text += "@" + mesh.axis_label(axis);
  return text;
}

Answer::Answer(const Asked& asked, std::string how) : asked_(asked) {
  along_.how = std::move(how);
  for (const auto& operand : asked.given.operands) {
    along_.operands.push_back({operand, operand ? operand->placements : whole_on(asked.mesh), {}, {}});
  }
}

TensorText Answer::placed(size_t i, const Placements& to) {
  Explanation::Operand& operand = along_.operands[i];
  TensorText now = *operand.tensor;
  if (to == now.placements) return now;
  operand.steps = steps_between(asked_.mesh, now, to);
  operand.placements = to;
  now.placements = to;
  return now;
}

TensorText Answer::reduced(size_t i) { return placed(i, without_partials(along_.operands[i].tensor->placements)); }

TensorText Answer::reduced(const TensorText& tensor) {
  TensorText result = tensor;
  result.placements = without_partials(tensor.placements);
  for (const auto& step : steps_between(asked_.mesh, tensor, result.placements)) {
    exchange(step.text + " for the result", step.bytes);
  }
  return result;
}

TensorText Answer::whole(const TensorText& tensor, const std::string& what) {
  TensorText result = tensor;
  result.placements = whole_on(asked_.mesh);
  for (const auto& step : steps_between(asked_.mesh, tensor, result.placements)) {
    exchange(step.text + " of " + what, step.bytes);
  }
  return result;
}

TensorText Answer::run(const std::string& op, const std::vector<TensorText>& operands,
                       std::vector<std::pair<std::string, ArgumentValue>> arguments) {
  OperatorCall call{.op = op, .operands = {operands.begin(), operands.end()}, .arguments = std::move(arguments)};
  const Explanation e = explain(call, asked_.mesh);
  for (const Explanation::Operand& operand : e.operands) {
    for (const auto* steps : {&operand.steps, &operand.back}) {
      for (const Explanation::Step& step : *steps) exchange(step.text + " for " + op, step.bytes);
    }
  }
  for (const Explanation::Exchange& made : e.exchanges) exchange(made.text, made.bytes, made.least);
  return {e.outputs.at(0).dtype, e.outputs.at(0).shape, e.outputs.at(0).placements};
}

void Answer::gather(const TensorText& tensor, const PieceRows& pieces, int64_t rows, int64_t element_size,
                    const std::string& what) {
  const Layout layout{asked_.mesh, tensor.shape, tensor.placements};
  const auto here = [&](const Dims& coordinate) {
    Dims part = local_shape(layout, coordinate);
    part[static_cast<size_t>(pieces.dim)] = rows;
    return numel(part) * static_cast<int64_t>(pieces.count() - 1) * element_size;
  };
  exchange("all_gather" + asked_.labels(pieces.axes) + " of " + what, asked_.most(here));
}

void Answer::exchange(const std::string& text, int64_t bytes, int64_t least) {
  if (bytes == 0) return;
  for (Explanation::Exchange& made : along_.exchanges) {
    if (made.text != text) continue;
    made.bytes += bytes;
    made.least += least;
    ++made.times;
    return;
  }
  along_.exchanges.push_back({.text = text, .bytes = bytes, .least = least, .times = 1});
}

Along Answer::done(const std::vector<TensorText>& outputs) {
  for (const TensorText& output : outputs) along_.outputs.push_back({output.dtype, output.shape, output.placements});
  return std::move(along_);
}

TensorText widened(TensorText tensor) {
  if (tensor.dtype == "f16" || tensor.dtype == "bf16") tensor.dtype = "f32";
  return tensor;
}

TensorText as(TensorText tensor, std::string dtype) {
  tensor.dtype = std::move(dtype);
  return tensor;
}

Placements whole_on(const Mesh& mesh) { return Placements(static_cast<size_t>(mesh.ndim()), Replicate()); }

std::optional<Along> along_sharded_dim(const OperatorCall& given, const rules::OpCall& call, const Mesh& mesh) {
  if (!call.op.starts_with("aten::") || given.operands.empty() || !given.operands[0]) return std::nullopt;
  const std::string base = rules::base_name(call.op);
  const Asked asked{given, call, mesh, base.substr(6), given.in_place || base != call.op};
  for (const auto& table : {along_parts(), along_operators(), along_indices()}) {
    for (const AlongRow& row : table) {
      if (!names(row.ops, asked.name)) continue;
      return asked.in_place && !row.in_place ? std::nullopt : row.function(asked);
    }
  }
  return std::nullopt;
}

}  // namespace sherd::plan
