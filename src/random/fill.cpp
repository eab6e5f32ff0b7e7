#include "random/fill.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <optional>

#include "random/device_fill.h"
#include "random/parallel.h"

namespace sherd::detail {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements: a thread that starts for fewer costs more than it does

std::optional<Stored> stored(c10::ScalarType dtype) {
  using c10::ScalarType;
  switch (dtype) {
    case ScalarType::Float:
      return Stored::f32;
    case ScalarType::Double:
      return Stored::f64;
    case ScalarType::Half:
      return Stored::f16;
    case ScalarType::BFloat16:
      return Stored::bf16;
    case ScalarType::Byte:
      return Stored::u8;
    case ScalarType::Char:
      return Stored::i8;
    case ScalarType::Short:
      return Stored::i16;
    case ScalarType::Int:
      return Stored::i32;
    case ScalarType::Long:
      return Stored::i64;
    case ScalarType::UInt16:
      return Stored::u16;
    case ScalarType::UInt32:
      return Stored::u32;
    case ScalarType::UInt64:
      return Stored::u64;
    case ScalarType::Bool:
      return Stored::truth;
    default:
      return std::nullopt;
  }
}

template <class F>
void for_each_stretch(const at::Tensor& out, const Positions& positions, F f) {
  for_ranges(out, kGrain, [&](int64_t begin, int64_t end) { positions.for_each_stretch(begin, end, f); });
}

}  // namespace

bool can_fill(c10::ScalarType dtype) { return stored(dtype).has_value(); }

void fill(const at::Tensor& local, const Positions& positions, Draw draw) {
  const Stored type = *stored(local.scalar_type());
  draw.limit = uniform_limit(draw.a, draw.b, type);
  const at::Tensor memory = local.is_contiguous() ? local : at::empty_like(local, at::MemoryFormat::Contiguous);
  if (!local.is_cpu()) {
    if (!fill_on_device(memory, type, positions, draw)) {
      const at::Tensor numbers = at::empty(local.sizes(), local.options().device(at::kCPU));
      fill(numbers, positions, draw);
      memory.copy_(numbers);
    }
    if (!memory.is_same(local)) local.copy_(memory);
    return;
  }
  auto* bytes = static_cast<char*>(memory.mutable_data_ptr());
  const auto size = static_cast<int64_t>(memory.element_size());
  const RandomLoops& loops = random_loops();
  for_each_stretch(memory, positions, [&](int64_t at, int64_t global, int64_t count) {
    loops.fill(draw, type, bytes + at * size, static_cast<uint64_t>(global), static_cast<size_t>(count));
  });
  if (!memory.is_same(local)) local.copy_(memory);
}

at::Tensor drop(const at::Tensor& in, const Positions& positions, const Dropout& dropout, const at::Tensor& mask) {
  const at::Tensor from = in.contiguous();
  const Stored type = *stored(in.scalar_type());
  if (!in.is_cpu()) {
    at::Tensor out = at::empty_like(from);
    if (drop_on_device(from, out, mask, type, positions, dropout)) return out;
    const at::Tensor kept = mask.defined() ? at::empty(mask.sizes(), at::kBool) : at::Tensor();
    out.copy_(drop(from.cpu(), positions, dropout, kept));
    if (mask.defined()) mask.copy_(kept);
    return out;
  }
  at::Tensor out = at::empty_like(from);
  const auto* input = static_cast<const char*>(from.const_data_ptr());
  auto* output = static_cast<char*>(out.mutable_data_ptr());
  auto* kept = mask.defined() ? mask.mutable_data_ptr<bool>() : nullptr;
  const auto size = static_cast<int64_t>(in.element_size());
  const RandomLoops& loops = random_loops();
  for_each_stretch(out, positions, [&](int64_t at, int64_t global, int64_t count) {
    loops.drop(dropout, type, input + at * size, output + at * size, kept == nullptr ? nullptr : kept + at,
               static_cast<uint64_t>(global), static_cast<size_t>(count));
  });
  return out;
}

}  // namespace sherd::detail
