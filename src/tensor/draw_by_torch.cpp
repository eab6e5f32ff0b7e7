#include "tensor/draw_by_torch.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <mutex>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "random/positions.h"
#include "tensor/draw.h"
#include "tensor/move.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kPiece = 1 << 20;  // elements that are drawn at a time; a multiple of 16

c10::Device device_of(const Stack& arguments) {
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor()) continue;
    const DTensorMeta* meta = meta_of(value.toTensor());
    return meta != nullptr ? meta->spec->mesh.device() : value.toTensor().device();
  }
  return c10::Device(c10::kCPU);
}

// Runs an operator on plain tensors, with torch's generator. One without an argument for it draws from the default one,
// which lends its place meanwhile.
void call_with(const c10::OperatorHandle& op, Stack& plain, const at::Generator& generator) {
  if (const auto index = op.schema().argumentIndexWithName("generator")) {
    plain[static_cast<size_t>(*index)] = generator;
    op.callBoxed(plain);
    return;
  }
  static std::mutex one_at_a_time;  // rank threads share the default generator
  const std::lock_guard lock(one_at_a_time);
  at::Generator usual = at::globalContext().defaultGenerator(generator.device());
  const Tensor before = usual.get_state();
  usual.set_state(generator.get_state());
  try {
    op.callBoxed(plain);
  } catch (...) {
    usual.set_state(before);
    throw;
  }
  at::Generator(generator).set_state(usual.get_state());
  usual.set_state(before);
}

// uniform_ and normal_ on the CPU take the generator's numbers in order, so that a large tensor need not be there as a
// whole: its pieces are drawn one after the other. (A normal_ whose size is no multiple of 16 draws its last 16 numbers
// again: the last piece has them all.)
bool draw_in_pieces(const c10::OperatorHandle& op, const Stack& stack, const at::Generator& generator) {
  const std::string& name = op.operator_name().name;
  const Tensor self = argument(stack, op, 0).toTensor();
  DTensorMeta* meta = meta_of(self);
  if ((name != "aten::uniform_" && name != "aten::normal_") || meta == nullptr || self.numel() < 2 * kPiece)
    return false;
  const DeviceMesh& mesh = meta->spec->mesh;
  if (!mesh.device().is_cpu() || meta->spec->has_partial || self.is_complex()) return false;
  const Tensor part = at::empty(meta->spec->local_sizes, self.options().device(mesh.device()));
  Positions positions = whole_positions(0);
  if (mesh.coordinate()) positions = positions_of(meta->spec->layout(), *mesh.coordinate());
  const int64_t count = mesh.coordinate() ? positions.numel() : 0;
  const auto size = static_cast<int64_t>(self.element_size());
  const Tensor piece = at::empty({2 * kPiece}, part.options());
  int64_t local = 0;  // elements of this rank that are there
  for (int64_t begin = 0; begin < self.numel();) {
    const int64_t left = self.numel() - begin;
    const int64_t drawn = left < 2 * kPiece ? left : kPiece;
    Stack plain = arguments_of(stack, op);
    plain[0] = piece.narrow(0, 0, drawn);
    call_with(op, plain, generator);
    while (local < count) {
      const Positions::Stretch stretch = positions.stretch_at(local);
      if (stretch.global >= begin + drawn) break;
      const int64_t inside = std::min(stretch.count, begin + drawn - stretch.global);
      std::memcpy(static_cast<char*>(part.mutable_data_ptr()) + local * size,
                  static_cast<const char*>(piece.const_data_ptr()) + (stretch.global - begin) * size,
                  static_cast<size_t>(inside * size));
      local += inside;
    }
    begin += drawn;
  }
  if (count > 0) current_local(*meta).copy_(part);
  if (mesh.coordinate()) wrote_local(*meta);
  return true;
}

// The whole of a tensor on every rank.
Tensor whole_of(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) return tensor;
  const Tensor whole = placed(tensor, meta->spec->mesh, whole_on(meta->spec->mesh));
  return part_of(whole);
}

void draw_exactly(const c10::OperatorHandle& op, Stack& stack, PhiloxGenerator& generator) {
  const at::Generator torchs = generator.of_torch(device_of(arguments_of(stack, op)));
  const Stack given = arguments_of(stack, op);
  const DeviceMesh* mesh = mesh_of_call(given);
  if (op.schema().is_mutable() && draw_in_pieces(op, stack, torchs)) {
    answer(op, stack, given[0]);
    return;
  }
  Stack plain = given;
  for (c10::IValue& value : plain) {
    if (value.isTensor() && meta_of(value.toTensor()) != nullptr) value = whole_of(value.toTensor()).clone();
  }
  const Stack wholes = plain;
  call_with(op, plain, torchs);
  torch::jit::drop(stack, given.size());
  const auto& schema = op.schema();
  // What was written goes back to where it lies.
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    DTensorMeta* meta = given[i].isTensor() ? meta_of(given[i].toTensor()) : nullptr;
    if (alias == nullptr || !alias->isWrite() || meta == nullptr || !meta->spec->mesh.coordinate()) continue;
    current_local(*meta).copy_(move(wholes[i].toTensor(), meta->spec->mesh, meta->spec->sizes,
                                    whole_on(meta->spec->mesh), meta->spec->placements));
    wrote_local(*meta);
  }
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    const auto* alias = schema.returns()[r].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      for (size_t i = 0; i < given.size(); ++i) {
        const auto* of = schema.arguments()[i].alias_info();
        if (of != nullptr && *of == *alias) stack.push_back(given[i]);
      }
      continue;
    }
    const Tensor made = plain[r].toTensor();
    if (mesh == nullptr) {
      stack.emplace_back(made);
      continue;
    }
    const Tensor whole = from_parts(*mesh, whole_on(*mesh), made.sizes().vec(), made);
    // A result of the shape of the first tensor lies as that does.
    const DTensorMeta* first = meta_of(given[0].toTensor());
    const bool alike = first != nullptr && first->spec->sizes == Dims(made.sizes().begin(), made.sizes().end());
    stack.emplace_back(alike ? placed(whole, *mesh, plan::without_partials(first->spec->placements)) : whole);
  }
}

// Where this rank's numbers begin, in PyTorch's way: the shards are counted, and each counts as large as the first. A
// dim that several axes cut counts, for the size of the first, as cut by the last of them alone.
int64_t shift_of(const Spec& spec, const Dims& coordinate) {
  const auto ndim = spec.sizes.size();
  Dims index(ndim, 0);
  Dims shards(ndim, 1);
  Dims first = spec.sizes;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    const int64_t dim = sharded_dim(spec.placements[axis]);
    if (dim < 0) continue;
    const auto d = static_cast<size_t>(dim);
    const int64_t size = spec.mesh.size(static_cast<int64_t>(axis));
    index[d] = index[d] * size + coordinate[axis];
    shards[d] *= size;
    first[d] = chunk(spec.sizes[d], size, 0).size;
  }
  int64_t place = 0;
  for (size_t d = 0; d < ndim; ++d) place = place * shards[d] + index[d];
  return (place * numel(first) + 3) / 4 * 4;
}

void draw_by_offset(const c10::OperatorHandle& op, Stack& stack, PhiloxGenerator& generator) {
  const std::string operation = op.operator_name().name.substr(6);
  const Stack given = arguments_of(stack, op);
  DTensorMeta* meta = given[0].isTensor() ? meta_of(given[0].toTensor()) : nullptr;
  const c10::Device device = device_of(given);
  if (meta == nullptr || !device.is_cuda()) {
    throw_value_error(ErrorText(operation, "RngMode::offset_based draws as PyTorch's DTensor does on CUDA")
                          .fact("tensor", meta != nullptr ? "on " + device.str() : "not distributed")
                          .help("sherd::RngMode::by_position"));
  }
  const Spec& spec = *meta->spec;
  if (spec.has_partial) {
    throw_value_error(ErrorText(operation, "a Partial tensor cannot be drawn by RngMode::offset_based")
                          .fact("tensor", describe(spec, given[0].toTensor().scalar_type()))
                          .help("sherd::redistribute(tensor, placements) first"));
  }
  at::Generator torchs = generator.of_torch(device);
  const uint64_t before = torchs.get_offset();
  torch::jit::drop(stack, given.size());
  std::vector<Tensor> results;
  if (spec.mesh.coordinate()) {
    torchs.set_offset(before + static_cast<uint64_t>(shift_of(spec, *spec.mesh.coordinate())));
    Stack local = given;
    for (c10::IValue& value : local) {
      if (value.isTensor() && value.toTensor().defined()) {
        value = part_of(placed(value.toTensor(), spec.mesh, spec.placements));
      }
    }
    call_with(op, local, torchs);
    for (const c10::IValue& value : local) results.push_back(value.toTensor());
  }
  const int64_t drawn = (numel(spec.sizes) + 3) / 4 * 4;
  torchs.set_offset(before + static_cast<uint64_t>(drawn));
  for (size_t r = 0; r < op.schema().returns().size(); ++r) {
    if (op.schema().returns()[r].alias_info() != nullptr) {
      if (spec.mesh.coordinate()) wrote_local(*meta);
      stack.push_back(given[0]);
      continue;
    }
    const Tensor part = r < results.size() ? results[r] : at::empty({0}, given[0].toTensor().options());
    stack.emplace_back(from_parts(spec.mesh, spec.placements, spec.sizes, part));
  }
}

}  // namespace

void draw_by_torch(const c10::OperatorHandle& op, Stack& stack, PhiloxGenerator& generator) {
  if (generator.mode() == RngMode::torch_exact) return draw_exactly(op, stack, generator);
  draw_by_offset(op, stack, generator);
}

}  // namespace sherd::detail
