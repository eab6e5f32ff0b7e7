#include "sharded/boxed_dtensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "comm/call.h"
#include "comm/errors.h"
#include "sharded/by_pieces.h"
#include "tensor/dispatch.h"
#include "tensor/draw.h"
#include "tensor/rewrites.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

const HeldBoxesPtr* held_of(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr && meta->spec->boxes ? &meta->spec->boxes : nullptr;
}

// The pieces of such a DTensor as parts of the whole.
Tensor as_pieces(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return wrap_pieces(meta->spec->boxes, boxes_of(meta->local)->pieces, tensor.scalar_type(), tensor.device());
}

// Calls f(tensor, argument) for every tensor of a call, in order.
template <class F>
void visit(const OpInfo& info, const Stack& stack, F&& f) {
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      if (value.isTensor() && value.toTensor().defined()) f(value.toTensor(), i);
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) f(element.toTensor(), i);
      }
    }
  }
}

// The arguments of a call with f(tensor, argument) in the place of every tensor.
template <class F>
Stack replaced(const OpInfo& info, const Stack& stack, F&& f) {
  Stack call(stack.end() - static_cast<int64_t>(info.arguments.size()), stack.end());
  for (size_t i = 0; i < call.size(); ++i) {
    c10::IValue& value = call[i];
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      if (value.isTensor() && value.toTensor().defined()) value = f(value.toTensor(), i);
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(tensor.defined() ? f(tensor, i) : tensor);
      value = std::move(list);
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isList()) {
      c10::List<std::optional<Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        const bool defined = element.isTensor() && element.toTensor().defined();
        list.push_back(defined ? std::optional(f(element.toTensor(), i)) : std::nullopt);
      }
      value = std::move(list);
    }
  }
  return call;
}

void check_moved(const std::string& operation, const std::string& tensor) {
  check_explicit([&] {
    return would_move(operation, {{"operand", tensor}}, "sherd::redistribute(tensor, placements) first");
  });
}

std::string text_of(const Tensor& tensor) { return describe(*meta_of(tensor)->spec, tensor.scalar_type()); }

class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) : op_(op), info_(info), stack_(stack) {}

  bool run() {
    visit(info_, stack_, [&](const Tensor& tensor, size_t) {
      if (held_of(tensor) != nullptr && lead_ == nullptr) lead_ = meta_of(tensor);
    });
    if (lead_ == nullptr) return false;
    check_and_settle();
    if (!by_boxes()) by_placements();
    return true;
  }

 private:
  void check_and_settle() {
    if (info_.is_inplace_view) {
      throw c10::NotImplementedError(ErrorText(info_.short_name(), "a tensor in boxes keeps its shape")
                                         .fact("tensor", describe(*lead_->spec, lead_->local.scalar_type()))
                                         .help("the operator without the underscore")
                                         .str());
    }
    visit(info_, stack_, [&](const Tensor& tensor, size_t) {
      const DTensorMeta* meta = meta_of(tensor);
      if (boxes_of(tensor) != nullptr) {
        throw_value_error(
            ErrorText(info_.short_name(), "a DTensor meets a tensor in pieces")
                .fact("DTensor", describe(*lead_->spec, lead_->local.scalar_type()))
                .fact("in pieces", dtype_name(tensor.scalar_type()) + to_string(tensor.sizes().vec()))
                .help("sherd::from_local(wrapper, mesh, placements) or sherd::sharded::to_dtensor(tensor)"));
      }
      if (meta == nullptr) return;
      if (!(meta->spec->mesh == lead_->spec->mesh)) {
        throw_value_error(ErrorText(info_.short_name(), "operands live on different meshes")
                              .fact("one", describe(*lead_->spec, lead_->local.scalar_type()))
                              .fact("other", text_of(tensor))
                              .help("sherd::redistribute(tensor, mesh, placements) of one of them"));
      }
      hook_leaf(tensor);
    });
  }

  // Box by box: every rank its own.
  bool by_boxes() {
    Stack call =
        replaced(info_, stack_, [](const Tensor& t, size_t) { return held_of(t) != nullptr ? as_pieces(t) : t; });
    const bool draws = info_.rewrite == draw_in_place || info_.rewrite == draw_anew || info_.rewrite == draw_like;
    if (info_.is_foreach) {
      run_lists_by_pieces(op_, info_, call);
    } else if (draws) {
      const Rewriting scope(info_);
      if (!info_.rewrite(op_, call)) return false;
    } else if (!run_by_pieces(op_, info_, call)) {
      return false;
    }
    for (c10::IValue& value : call) value = in_dtensors(value);
    finish(std::move(call));
    return true;
  }

  c10::IValue in_dtensors(const c10::IValue& value) const {
    if (value.isTensor()) return in_dtensor(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(in_dtensor(tensor));
    return list;
  }

  Tensor in_dtensor(const Tensor& result) const {
    const BoxesMeta* pieces = boxes_of(result);
    if (pieces == nullptr) return result;
    const auto held = std::dynamic_pointer_cast<const HeldBoxes>(pieces->layout);
    if (!result.is_meta() && result.device().type() != held->mesh->device_type()) {
      refuse_device(info_, *held->mesh, result.device());
    }
    return wrap_in_boxes(held, pieces->pieces, result.scalar_type(), result.device());
  }

  // As ordinary DTensors. What is written goes back into its boxes.
  void by_placements() {
    struct Written {
      Tensor tensor;
      Tensor moved;
    };
    std::vector<Written> written;
    Stack call = replaced(info_, stack_, [&](const Tensor& tensor, size_t argument) {
      if (held_of(tensor) == nullptr) return tensor;
      const Tensor moved = info_.arguments[argument].out ? room_for(tensor) : moved_out(tensor);
      if (info_.arguments[argument].written) written.push_back({tensor, moved});
      return moved;
    });
    op_.callBoxed(call);
    for (const auto& [tensor, moved] : written) write_back(tensor, moved);
    finish(std::move(call));
  }

  Tensor moved_out(const Tensor& tensor) const {
    check_moved(info_.short_name(), text_of(tensor));
    DTensorMeta* meta = meta_of(tensor);
    const std::string operation = info_.short_name();
    Tensor moved = ordinary(tensor, meta->spec->placements, {.operation = operation.c_str()});
    if (info_.is_view) {
      DTensorMeta* copy = meta_of(moved);
      copy->origin = c10::make_intrusive<ViewOrigin>(meta->local, copy->local, meta->spec->boxes);
    }
    return moved;
  }

  static Tensor room_for(const Tensor& out) {
    const DTensorMeta* meta = meta_of(out);
    const Spec& spec = *meta->spec;
    const auto options = at::TensorOptions(out.scalar_type()).device(meta->local.device());
    const SpecPtr ordinary_spec = intern_spec(spec.mesh, spec.placements, spec.sizes, contiguous_strides(spec.sizes));
    return wrap(ordinary_spec, at::empty(ordinary_spec->local_sizes, options));
  }

  void write_back(const Tensor& tensor, const Tensor& moved) const {
    const HeldBoxesPtr& held = *held_of(tensor);
    if (moved.sizes() != tensor.sizes()) {
      throw_value_error(ErrorText(info_.short_name(), "a tensor in boxes keeps its shape")
                            .fact("tensor", text_of(tensor))
                            .fact("result", text_of(moved))
                            .help("let the operator make its own result"));
    }
    if (!held->mesh->coordinate()) return;
    const std::string operation = info_.short_name();
    const std::vector<Tensor> pieces = pieces_in_boxes(operation.c_str(), moved, *held);
    const auto& to = boxes_of(meta_of(tensor)->local)->pieces;
    for (size_t i = 0; i < pieces.size(); ++i) to[i].copy_(pieces[i]);
  }

  // The results in the place of the arguments; what was written is the argument itself.
  void finish(Stack results) {
    const size_t base = stack_.size() - info_.arguments.size();
    for (size_t i = 0; i < info_.return_of.size(); ++i) {
      if (info_.return_of[i] >= 0) results[i] = stack_[base + static_cast<size_t>(info_.return_of[i])];
    }
    // Copied views of what was written are fetched anew.
    visit(info_, stack_, [&](const Tensor& tensor, size_t argument) {
      if (info_.arguments[argument].written && held_of(tensor) != nullptr) wrote_local(*meta_of(tensor));
    });
    torch::jit::drop(stack_, info_.arguments.size());
    for (c10::IValue& result : results) stack_.push_back(std::move(result));
  }

  const c10::OperatorHandle& op_;
  const OpInfo& info_;
  Stack& stack_;
  const DTensorMeta* lead_ = nullptr;
};

}  // namespace

bool run_on_boxed_dtensors(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  return BoxedCall(op, info, stack).run();
}

Tensor operand_in_boxes(const OpInfo& info, const Tensor& dtensor, const HeldBoxes& held) {
  check_moved(info.short_name(), text_of(dtensor));
  const std::string operation = info.short_name();
  std::vector<Tensor> pieces = pieces_in_boxes(operation.c_str(), dtensor, held);
  auto layout = std::make_shared<BoxLayout>();
  layout->size = dtensor.sizes().vec();
  layout->cut.assign(layout->size.size(), true);
  for (const Tensor& piece : pieces) layout->boxes.push_back({Dims(layout->size.size(), 0), piece.sizes().vec()});
  return wrap_pieces(std::move(layout), std::move(pieces), dtensor.scalar_type(), dtensor.device());
}

Tensor from_boxes_to_boxes(const std::string& operation, const Tensor& tensor, const HeldBoxesPtr& from,
                           const HeldBoxesPtr& to) {
  const Tensor dtensor = wrap_in_boxes(from, boxes_of(tensor)->pieces, tensor.scalar_type(), tensor.device());
  if (!held_alike(*from, *to)) check_moved(operation, text_of(dtensor));
  return wrap_pieces(to, pieces_in_boxes(operation.c_str(), dtensor, *to), tensor.scalar_type(), tensor.device());
}

}  // namespace sherd::detail
