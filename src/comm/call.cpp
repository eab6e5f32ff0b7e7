#include "comm/call.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <functional>

#include "sherd/box.h"

namespace sherd::detail {

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::gather:
      return "gather";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::scatter:
      return "scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce:
      return "reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::barrier:
      return "barrier";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
  }
  return "collective";
}

std::string dtype_name(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Float:
      return "f32";
    case ScalarType::Double:
      return "f64";
    case ScalarType::Half:
      return "f16";
    case ScalarType::BFloat16:
      return "bf16";
    case ScalarType::Byte:
      return "u8";
    case ScalarType::Char:
      return "i8";
    case ScalarType::Short:
      return "i16";
    case ScalarType::Int:
      return "i32";
    case ScalarType::Long:
      return "i64";
    case ScalarType::UInt16:
      return "u16";
    case ScalarType::UInt32:
      return "u32";
    case ScalarType::UInt64:
      return "u64";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::ComplexHalf:
      return "c32";
    case ScalarType::ComplexFloat:
      return "c64";
    case ScalarType::ComplexDouble:
      return "c128";
    case ScalarType::Float8_e4m3fn:
      return "f8e4m3fn";
    case ScalarType::Float8_e5m2:
      return "f8e5m2";
    case ScalarType::Float8_e4m3fnuz:
      return "f8e4m3fnuz";
    case ScalarType::Float8_e5m2fnuz:
      return "f8e5m2fnuz";
    case ScalarType::Float8_e8m0fnu:
      return "f8e8m0fnu";
    default:
      return c10::toString(type);
  }
}

namespace {

Dims numels_of(const std::vector<at::Tensor>& tensors) {
  Dims numels;
  for (const auto& tensor : tensors) numels.push_back(tensor.numel());
  return numels;
}

}  // namespace

std::string describe(const Call& call) {
  std::string text = name_of(call.kind);
  const bool reduces =
      call.kind == Collective::all_reduce || call.kind == Collective::reduce || call.kind == Collective::reduce_scatter;
  if (reduces) text += "(" + to_string(call.op) + ")";
  if (call.root >= 0) text += " root " + std::to_string(call.root);
  const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
  if (tensors.empty()) return text;
  text += " " + dtype_name(tensors.front().scalar_type());
  if (tensors.size() > 1) return text + " blocks of " + to_string(numels_of(tensors));
  text += to_string(tensors.front().sizes().vec());
  const bool gathers = call.kind == Collective::all_gather || call.kind == Collective::gather;
  const Dims blocks = gathers ? numels_of(call.outputs) : Dims();
  const bool even = std::adjacent_find(blocks.begin(), blocks.end(), std::not_equal_to<>()) == blocks.end();
  return even ? text : text + " into blocks of " + to_string(blocks);
}

std::string describe_with_purpose(const Call& call) {
  return (call.purpose ? call.purpose->text + ": " : "") + describe(call);
}

}  // namespace sherd::detail
