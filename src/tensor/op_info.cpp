#include "tensor/op_info.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>

#include "rules/registry.h"
#include "tensor/composite.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

bool is_tensor_type(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto optional = type->cast<c10::OptionalType>()) return is_tensor_type(optional->getElementType());
  return false;
}

bool is_tensor_list(const c10::TypePtr& type) {
  if (const auto list = type->cast<c10::ListType>()) return is_tensor_type(list->getElementType());
  if (const auto optional = type->cast<c10::OptionalType>()) return is_tensor_list(optional->getElementType());
  return false;
}

// Numbers that change from call to call (a learning rate, a probability) do not decide how an operator is sharded.
bool is_ignored(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return is_ignored(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return is_ignored(list->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::GeneratorType:
      return true;
    default:
      return false;
  }
}

rules::Value value_of(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isIntList()) return Dims(value.toIntVector());
  if (value.isBoolList()) {
    Dims flags;
    for (const bool flag : value.toBoolList()) flags.push_back(flag ? 1 : 0);
    return flags;
  }
  if (value.isString()) return value.toStringRef();
  return std::monostate();
}

bool same_inputs(const c10::FunctionSchema& one, const c10::FunctionSchema& other) {
  std::vector<const c10::Argument*> left;
  for (const c10::Argument& argument : one.arguments()) {
    if (!argument.is_out()) left.push_back(&argument);
  }
  if (left.size() != other.arguments().size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i]->name() != other.arguments()[i].name() || *left[i]->type() != *other.arguments()[i].type())
      return false;
  }
  return true;
}

// The functional operator with the same inputs as an in-place or out= one: its rule and its tags hold for both. An
// overload for out= is named after it and what it writes: max.dim_max, sort.values_stable, add.out.
c10::OperatorHandle base_of(const c10::OperatorHandle& op) {
  const std::string name = rules::base_name(op.operator_name().name);
  const std::string& overload = op.operator_name().overload_name;
  const size_t last = overload.rfind('_');
  const size_t first = overload.find('_');
  for (const std::string& candidate : {overload, last == std::string::npos ? "" : overload.substr(0, last),
                                       first == std::string::npos ? "" : overload.substr(first + 1), std::string()}) {
    const auto base = c10::Dispatcher::singleton().findSchema({name, candidate});
    if (base && same_inputs(op.schema(), base->schema())) return *base;
  }
  return op;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& op) {
  name = op.operator_name().name;
  overload = op.operator_name().overload_name;
  const c10::FunctionSchema& schema = op.schema();
  for (const c10::Argument& argument : schema.arguments()) {
    ArgumentInfo info;
    if (is_tensor_type(argument.type())) {
      info.kind = ArgumentKind::tensor;
    } else if (is_tensor_list(argument.type())) {
      info.kind = ArgumentKind::tensor_list;
    } else {
      info.kind = is_ignored(argument.type()) ? ArgumentKind::ignored : ArgumentKind::keyed;
    }
    info.written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    info.out = argument.is_out();
    writes |= info.written;
    has_out |= info.out;
    fills_lists |= info.out && info.kind == ArgumentKind::tensor_list;
    arguments.push_back(info);
  }
  for (const c10::Argument& result : schema.returns()) {
    int same = -1;
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && *alias == *result.alias_info()) same = static_cast<int>(i);
      }
    }
    return_of.push_back(same);
    is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  reshapes = name == "aten::view" && overload.empty();
  reads_strides = name.starts_with("aten::as_strided");
  const c10::OperatorHandle base = base_of(op);
  base_overload = base.operator_name().overload_name;
  // Of equal(), which torch tags as well, the result is one for all elements.
  const bool returns_tensors = std::all_of(schema.returns().begin(), schema.returns().end(),
                                           [](const c10::Argument& result) { return is_tensor_type(result.type()); });
  is_pointwise = returns_tensors && (op.hasTag(at::Tag::pointwise) || base.hasTag(at::Tag::pointwise));
  rewrite = rewrite_for(name, overload);
  composite = composite_kernel_of(op);
  is_inplace_view = op.hasTag(at::Tag::inplace_view);
  is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  dropout = schema.argumentIndexWithName("dropout_p").value_or(-1);
  // Reductions over each tensor of a list are not element-wise: they take the way of every other operator.
  const bool reduces = name.starts_with("aten::_foreach_norm") || name == "aten::_foreach_max" ||
                       name.starts_with("aten::_foreach_powsum") || name.starts_with("aten::_foreach_mm");
  is_foreach = (name.starts_with("aten::_foreach_") && !reduces) || name.starts_with("aten::_fused_adam") ||
               name.starts_with("aten::_fused_sgd") || name.starts_with("aten::_fused_adagrad");
}

rules::OpCall OpInfo::call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) const {
  rules::OpCall result;
  result.op = name;
  result.overload = base_overload;
  result.num_outputs = static_cast<int>(schema.returns().size());
  const size_t base = stack.size() - arguments.size();
  const auto add = [&](const at::Tensor& tensor, size_t argument) {
    rules::TensorArgument entry;
    entry.present = tensor.defined();
    entry.argument = static_cast<int>(argument);
    if (entry.present) {
      entry.shape = tensor.sizes().vec();
      entry.stride = tensor.strides().vec();
      entry.element_size = static_cast<int64_t>(tensor.element_size());
      entry.is_mask = tensor.scalar_type() == c10::ScalarType::Bool || tensor.scalar_type() == c10::ScalarType::Byte;
    }
    result.tensors.push_back(std::move(entry));
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (arguments[i].out) continue;
    if (arguments[i].kind == ArgumentKind::tensor) {
      add(value.isTensor() ? value.toTensor() : at::Tensor(), i);
    } else if (arguments[i].kind == ArgumentKind::tensor_list) {
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) add(tensor, i);
      } else if (value.isList()) {
        for (const c10::IValue& element : value.toListRef()) {
          add(element.isTensor() ? element.toTensor() : at::Tensor(), i);
        }
      }
    } else {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.real_type()->kind() == c10::TypeKind::ScalarTypeType && value.isInt()) {
        result.dtype_size = static_cast<int64_t>(c10::elementSize(value.toScalarType()));
      }
      result.plain.push_back({argument.name(), static_cast<int>(i), value_of(value)});
    }
  }
  return result;
}

}  // namespace sherd::detail
