#include "tensor/draw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>

#include <limits>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "random/fill.h"
#include "random/generator.h"
#include "tensor/boxes_meta.h"
#include "tensor/draw_by_torch.h"
#include "tensor/move.h"
#include "tensor/random_factories.h"
#include "tensor/rewrite_tools.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

[[noreturn]] void refuse(const std::string& operation, const std::string& problem, const std::string& given,
                         const std::string& help) {
  throw_value_error(ErrorText(operation, problem).fact("given", given).help(help));
}

void require(bool fine, const std::string& operation, const char* problem, double given, const char* help) {
  if (!fine) refuse(operation, problem, fmt::format("{}", given), help);
}

// The largest number that random_() draws: what the dtype counts without a gap.
int64_t largest_whole(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kDouble:
      return int64_t{1} << std::numeric_limits<double>::digits;
    case c10::kFloat:
      return int64_t{1} << std::numeric_limits<float>::digits;
    case c10::kHalf:
      return int64_t{1} << 11;
    case c10::kBFloat16:
      return int64_t{1} << 8;
    case c10::kBool:
      return 1;
    case c10::kByte:
      return std::numeric_limits<uint8_t>::max();
    case c10::kChar:
      return std::numeric_limits<int8_t>::max();
    case c10::kShort:
      return std::numeric_limits<int16_t>::max();
    case c10::kInt:
      return std::numeric_limits<int32_t>::max();
    case c10::ScalarType::UInt16:
      return std::numeric_limits<uint16_t>::max();
    case c10::ScalarType::UInt32:
      return std::numeric_limits<uint32_t>::max();
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

bool has_sign(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool:
    case c10::kByte:
    case c10::ScalarType::UInt16:
    case c10::ScalarType::UInt32:
    case c10::ScalarType::UInt64:
      return false;
    default:
      return true;
  }
}

// [from, to], with no `to` all that the dtype holds.
Draw integers_between(const std::string& operation, c10::ScalarType dtype, int64_t from, std::optional<int64_t> last) {
  const int64_t most = largest_whole(dtype);
  const int64_t end = last.value_or(most);
  if (end < from) {
    refuse(operation, "the range is empty", fmt::format("[{}, {})", from, end + 1), "from < to");
  }
  const int64_t least =
      c10::isIntegralType(dtype, true) ? (has_sign(dtype) ? -most - 1 : 0) : std::numeric_limits<int64_t>::min();
  const bool whole_numbers = c10::isIntegralType(dtype, true);
  if (whole_numbers && (from < least || end > most)) {
    refuse(operation, "the dtype does not hold all of the range", fmt::format("[{}, {}]", from, end),
           fmt::format("numbers between {} and {}", least, most));
  }
  const uint64_t range = static_cast<uint64_t>(end) - static_cast<uint64_t>(from) + 1;
  return {.distribution = Distribution::integers, .low = from, .range = range};
}

// Without "aten::".
std::string plain_name(const c10::OperatorHandle& op) { return op.operator_name().name.substr(6); }

// The distribution of an operator, by the arguments behind self.
Draw draw_of(const c10::OperatorHandle& op, const Stack& stack, c10::ScalarType dtype) {
  const std::string operation = plain_name(op);
  const std::string name = operation.ends_with('_') ? operation.substr(0, operation.size() - 1) : operation;
  const auto number = [&](size_t i) { return argument(stack, op, i).toScalar().toDouble(); };
  if (name == "uniform") {
    require(number(1) <= number(2), operation, "from is above to", number(1), "uniform_(0, 1)");
    return {.distribution = Distribution::uniform, .a = number(1), .b = number(2)};
  }
  if (name == "normal" || name == "normal_functional" || name == "log_normal") {
    require(number(2) >= 0, operation, "the standard deviation is below 0", number(2), "std >= 0");
    return {.distribution = name == "log_normal" ? Distribution::log_normal : Distribution::normal,
            .a = number(1),
            .b = number(2)};
  }
  if (name == "exponential") {
    require(number(1) > 0, operation, "the rate is not above 0", number(1), "lambda > 0");
    return {.distribution = Distribution::exponential, .a = number(1)};
  }
  if (name == "cauchy") {
    require(number(2) > 0, operation, "the scale is not above 0", number(2), "sigma > 0");
    return {.distribution = Distribution::cauchy, .a = number(1), .b = number(2)};
  }
  if (name == "geometric") {
    require(number(1) > 0 && number(1) < 1, operation, "the probability is not inside (0, 1)", number(1), "0 < p < 1");
    return {.distribution = Distribution::geometric, .a = number(1)};
  }
  if (name == "bernoulli") {
    require(number(1) >= 0 && number(1) <= 1, operation, "the probability is outside [0, 1]", number(1), "0 <= p <= 1");
    return {.distribution = Distribution::bernoulli, .a = number(1)};
  }
  const std::string& overload = op.operator_name().overload_name;  // random
  if (overload.starts_with("from")) {
    const c10::IValue& to = argument(stack, op, 2);
    const int64_t from = argument(stack, op, 1).toInt();
    return integers_between(operation, dtype, from, to.isNone() ? std::nullopt : std::optional(to.toInt() - 1));
  }
  if (overload.starts_with("to")) return integers_between(operation, dtype, 0, argument(stack, op, 1).toInt() - 1);
  return integers_between(operation, dtype, 0, std::nullopt);
}

// Memory like that of self, with the dtype and the order of dims that the operator was given.
Tensor made_like(const Tensor& self, const c10::OperatorHandle& op, const Stack& stack) {
  at::TensorOptions options;
  const auto given = [&](const char* name) {
    return argument(stack, op, static_cast<size_t>(*op.schema().argumentIndexWithName(name)));
  };
  if (const c10::IValue dtype = given("dtype"); !dtype.isNone()) options = options.dtype(dtype.toScalarType());
  std::optional<at::MemoryFormat> format;
  if (const c10::IValue memory = given("memory_format"); !memory.isNone()) format = memory.toMemoryFormat();
  return at::empty_like(self, options, format);
}

const DeviceMesh* mesh_of_tensor(const Tensor& tensor) {
  if (const DTensorMeta* meta = meta_of(tensor)) return &meta->spec->mesh;
  const BoxesMeta* boxes = boxes_of(tensor);
  return boxes != nullptr && boxes->layout->mesh ? &*boxes->layout->mesh : nullptr;
}

bool is_whole(Distribution distribution) {
  return distribution == Distribution::integers || distribution == Distribution::bernoulli ||
         distribution == Distribution::geometric;
}

}  // namespace

const DeviceMesh* mesh_of_call(const Stack& arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      if (const DeviceMesh* found = mesh_of_tensor(value.toTensor())) return found;
    }
  }
  return nullptr;
}

std::optional<at::Generator> generator_given(const c10::OperatorHandle& op, const Stack& stack) {
  const auto index = op.schema().argumentIndexWithName("generator");
  if (!index) return std::nullopt;
  return argument(stack, op, static_cast<size_t>(*index)).toOptional<at::Generator>();
}

void fill_drawn(const char* operation, const Tensor& self, Draw draw, PhiloxGenerator& generator) {
  const auto dtype = c10::toRealValueType(self.scalar_type());
  const bool fits = can_fill(dtype) && (is_whole(draw.distribution) || c10::isFloatingType(dtype));
  if (!fits) {
    throw c10::NotImplementedError(ErrorText(operation, "not for this dtype")
                                       .fact("dtype", c10::toString(self.scalar_type()))
                                       .help("draw in float32 and convert: .to(dtype)")
                                       .str());
  }
  draw.seed = generator.current_seed();
  draw.offset = generator.next_draw();
  int64_t parts = 1;
  if (self.is_complex()) {  // as torch: the two parts have half of the variance each
    parts = 2;
    if (draw.distribution == Distribution::normal) draw.b /= std::sqrt(2.0);
  }
  const auto fill_local = [&](const Tensor& local, const Positions& positions) {
    if (local.is_meta() || local.numel() == 0) return;
    fill(local.is_complex() ? at::view_as_real(local) : local, positions, draw);
  };
  if (const BoxesMeta* boxes = boxes_of(self)) {
    for (size_t i = 0; i < boxes->pieces.size(); ++i) {
      fill_local(boxes->pieces[i], positions_of(boxes->layout->size, boxes->layout->boxes[i], parts));
    }
    return;
  }
  DTensorMeta* meta = meta_of(self);
  if (meta == nullptr) {
    fill_local(self, whole_positions(self.numel() * parts));
    return;
  }
  const DeviceMesh& mesh = meta->spec->mesh;
  if (!mesh.coordinate()) return;
  const Placements whole = plan::without_partials(meta->spec->placements);
  const Positions positions = positions_of({mesh.mesh(), meta->spec->sizes, whole}, *mesh.coordinate(), parts);
  const Tensor& local = current_local(*meta);
  if (meta->spec->has_partial) {
    const Tensor drawn = at::empty_like(local, at::MemoryFormat::Contiguous);
    fill_local(drawn, positions);
    local.copy_(move(drawn, mesh, meta->spec->sizes, whole, meta->spec->placements));
  } else {
    fill_local(local, positions);
  }
  wrote_local(*meta);
}

bool draw_in_place(const c10::OperatorHandle& op, Stack& stack) {
  const std::string operation = plain_name(op);
  const Tensor self = argument(stack, op, 0).toTensor();
  const Draw draw = draw_of(op, stack, self.scalar_type());
  PhiloxGenerator& generator = generator_for(operation.c_str(), generator_given(op, stack), mesh_of_tensor(self));
  if (generator.mode() == RngMode::by_position) {
    fill_drawn(operation.c_str(), self, draw, generator);
  } else if (const BoxesMeta* boxes = boxes_of(self)) {
    const Tensor whole = at::empty(self.sizes(), self.options());
    Stack plain = arguments_of(stack, op);
    plain[0] = whole;
    draw_by_torch(op, plain, generator);
    for (size_t i = 0; i < boxes->pieces.size(); ++i) boxes->pieces[i].copy_(part_of(whole, boxes->layout->boxes[i]));
  } else {
    draw_by_torch(op, stack, generator);
    return true;
  }
  answer(op, stack, self);
  return true;
}

bool draw_anew(const c10::OperatorHandle& op, Stack& stack) {
  Stack in_place = arguments_of(stack, op);
  in_place[0] = at::empty_like(in_place[0].toTensor());
  std::string name = op.operator_name().name;
  if (name.ends_with("_functional")) name.resize(name.size() - 11);
  // bernoulli(self, p) is bernoulli_.float
  const std::string overload = op.operator_name().overload_name == "p" ? "float" : op.operator_name().overload_name;
  const auto written = c10::Dispatcher::singleton().findSchemaOrThrow((name + "_").c_str(), overload.c_str());
  draw_in_place(written, in_place);
  answer(op, stack, in_place.back());
  return true;
}

bool draw_like(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const auto generator = generator_given(op, stack);
  const std::string& name = op.operator_name().name;
  const std::string& overload = op.operator_name().overload_name;
  Tensor result = made_like(self, op, stack);
  if (name == "aten::rand_like") {
    result.uniform_(0, 1, generator);
  } else if (name == "aten::randn_like") {
    result.normal_(0, 1, generator);
  } else if (overload.starts_with("low")) {
    result.random_(argument(stack, op, 1).toInt(), argument(stack, op, 2).toInt(), generator);
  } else {
    const c10::IValue& high = argument(stack, op, 1);
    result.random_(0, high.isTensor() ? high.toTensor().item<int64_t>() : high.toInt(), generator);
  }
  answer(op, stack, result);
  return true;
}

// randperm(n, generator, out), which randperm calls with the tensor that it made.
bool draw_permutation(const c10::OperatorHandle& op, Stack& stack) {
  const auto given = generator_given(op, stack);
  Tensor out = argument(stack, op, 2).toTensor();
  if (philox_of(given) == nullptr || meta_of(out) != nullptr) return false;
  const int64_t n = argument(stack, op, 0).toInt();
  PhiloxGenerator& generator = generator_for("randperm", given, nullptr);
  out.resize_({n});
  out.copy_(generator.mode() == RngMode::torch_exact ? at::randperm(n, generator.of_torch(out.device()), out.options())
                                                     : permutation_rows(n, generator, whole_positions(n)));
  answer(op, stack, out);
  return true;
}

bool draw_into_out(const c10::OperatorHandle& op, Stack& stack) {
  const auto& arguments = op.schema().arguments();
  Stack given;
  std::vector<Tensor> outs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_out()) {
      outs.push_back(argument(stack, op, i).toTensor());
    } else {
      given.push_back(argument(stack, op, i));
    }
  }
  // "Tensor_out" is the form of "Tensor", "out" that of "".
  std::string overload = op.operator_name().overload_name;
  overload.resize(overload.size() - std::min<size_t>(overload.size(), overload.ends_with("_out") ? 4 : 3));
  if (op.operator_name().name == "aten::bernoulli" && overload == "float") overload = "p";
  const auto base = c10::Dispatcher::singleton().findSchema({op.operator_name().name, overload});
  if (!base || base->schema().arguments().size() != given.size()) return false;
  // Not through the dispatcher: where no tensor of the call is a DTensor, a generator on a stack brings nobody here.
  if (!rewrite_for(base->operator_name().name, overload)(*base, given)) return false;
  torch::jit::drop(stack, arguments.size());
  for (size_t i = 0; i < outs.size(); ++i) {
    const Tensor made = given[i].toTensor();
    if (outs[i].sizes() != made.sizes()) outs[i].resize_(made.sizes());
    outs[i].copy_(made);
    stack.emplace_back(outs[i]);
  }
  return true;
}

}  // namespace sherd::detail
