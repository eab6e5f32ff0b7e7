#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "comm/call.h"
#include "comm/errors.h"
#include "tensor/dispatch.h"
#include "tensor/loss_parallel_check.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/move_listener.h"
#include "tensor/padding.h"
#include "tensor/switches.h"
#include "tensor/take_values.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

void check_moves(const OpInfo& info, const OpPlan& plan) {
  if (!plan.any_moves || plan.bytes == 0) return;
  check_explicit([&] {
    std::vector<std::pair<std::string, std::string>> facts;
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const InputPlan& input = plan.inputs[i];
      if (!input.moves) continue;
      facts.emplace_back(fmt::format("operand {}", i),
                         fmt::format("{} -> {}: {}", to_string(input.from), to_string(input.to),
                                     to_string(input.move, plan.mesh->mesh())));
    }
    if (plan.writes_back) facts.emplace_back("and back", "an in-place operator leaves its tensor where it was");
    const auto dear = std::find_if(plan.inputs.begin(), plan.inputs.end(),
                                   [](const InputPlan& input) { return input.moves && input.move.bytes > 0; });
    return would_move(info.short_name(), facts,
                      fmt::format("operand{0} = sherd::redistribute(operand{0}, {1})", dear - plan.inputs.begin(),
                                  to_code(dear->to)));
  });
}

// The tensors of a call as they were, kept while their places on the stack hold local ones.
struct Original {
  Tensor tensor;
  size_t argument = 0;
  size_t input = 0;
  Tensor moved;  // where a written argument was moved
};

class Execution {
 public:
  Execution(const c10::OperatorHandle& op, const OpInfo& info, OpPlan& plan, Stack& stack)
      : op_(op), info_(info), plan_(plan), stack_(stack), base_(stack.size() - info.arguments.size()) {}

  void run() {
    size_t input = 0;
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      const ArgumentInfo& argument = info_.arguments[i];
      c10::IValue& value = stack_[base_ + i];
      if (argument.kind == ArgumentKind::tensor) {
        if (argument.out) {
          keep_out(value, i);
        } else {
          if (value.isTensor()) localize(value, i, input);
          ++input;
        }
      } else if (argument.kind == ArgumentKind::tensor_list && value.isList()) {
        input = localize_list(value, i, input);
      }
    }
    for (const SizeEdit& edit : plan_.edits) stack_[base_ + static_cast<size_t>(edit.argument)] = edit.sizes;
    for (const IntEdit& edit : plan_.int_edits) stack_[base_ + static_cast<size_t>(edit.argument)] = edit.value;
    if (info_.reshapes) make_viewable();
    if (info_.reads_strides) place_offset();
    if (info_.is_view && stack_[base_].isTensor()) viewed_ = stack_[base_].toTensor();
    const bool draws =
        plan_.broadcasts && (info_.dropout < 0 || stack_[base_ + static_cast<size_t>(info_.dropout)].toDouble() > 0);
    if (plan_.kernel != nullptr) {
      plan_.kernel(op_, plan_, stack_);
    } else if (plan_.pads) {
      call_padded(op_, info_, plan_, stack_);
    } else {
      op_.callBoxed(stack_);
    }
    if (draws) agree_on_random_values();
    if (plan_.writes_back && !info_.is_inplace_view) write_back();
    wrap_results();
    if (info_.writes && !info_.is_inplace_view) tell_of_writes();
  }

 private:
  Tensor local_of(const Tensor& tensor, size_t argument, size_t input) {
    DTensorMeta* meta = meta_of(tensor);
    const InputPlan& how = plan_.inputs[input];
    const bool written = info_.arguments[argument].written;
    settle(tensor);
    Tensor local = meta != nullptr ? current_local(*meta) : tensor;
    std::optional<c10::InferenceMode> ordinary;  // as what is viewed
    if (info_.is_view && c10::InferenceMode::is_enabled() && !tensor.is_inference()) ordinary.emplace(false);
    if (how.moves) {
      const OperandMove told(input);
      if (meta != nullptr && meta->gathered) {
        if (Tensor whole = meta->gathered->take(*meta, how); whole.defined()) return whole;
      }
      const bool contiguous = local.is_contiguous();
      local = move(how.move, local, *plan_.mesh, how.shape, how.from);
      // Kernels read what they saved themselves (a mean, a mask) without asking for its strides.
      if (contiguous) local = local.contiguous();
    }
    if (input == 0 && (info_.is_view || info_.reads_strides || info_.is_inplace_view)) {
      begin_ = tensor.storage_offset();
    }
    if (input == 0 && meta != nullptr && info_.reads_strides) local = in_whole_memory(*meta, tensor, local, how);
    if (input == 0 && meta != nullptr && (info_.is_view || info_.is_inplace_view)) remember_view(*meta, how, local);
    if (written) {
      // A slice would write into the original, which gets its new value in write_back.
      if (how.moves && meta != nullptr && local.is_alias_of(meta->local)) local = local.clone();
      if (info_.is_inplace_view) {
        const Tensor before = local;
        local = local.alias();
        share_version(local, before);
        viewed_ = before;
      }
      originals_.push_back({tensor, argument, input, how.moves ? local : Tensor()});
    }
    return local;
  }

  // The local tensor, all of it there, in memory as the whole tensor's strides say.
  Tensor in_whole_memory(const DTensorMeta& meta, const Tensor& tensor, const Tensor& local,
                         const InputPlan& how) const {
    const at::IntArrayRef strides = meta.spec->strides;
    // What was cut out of a tensor starts somewhere in its memory, which is there only where nothing was moved. Without
    // an offset the view itself is where to start, and its own elements are there.
    const bool has_memory = meta.is_placed && !how.moves && local.strides() == strides;
    if (meta.is_cut && !has_memory && !(starts_at_itself() && asks_for_some_of(meta.spec->sizes, strides))) {
      throw c10::NotImplementedError(
          ErrorText(info_.short_name(), "this view of a distributed tensor has no memory around it")
              .fact("view", describe(*meta.spec, tensor.scalar_type()))
              .help("call as_strided on the tensor itself, or clone() the view first")
              .str());
    }
    if (local.strides() == strides) return local;
    Dims sizes = local.sizes().vec();
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (strides[d] == 0 && sizes[d] > 0) sizes[d] = 1;  // expanded
    }
    Tensor memory = at::empty_strided(sizes, strides, local.options());
    Tensor rows = local;
    for (size_t d = 0; d < sizes.size(); ++d) rows = rows.narrow(static_cast<int64_t>(d), 0, sizes[d]);
    memory.copy_(rows);
    return memory.expand(local.sizes());
  }

  // Whether what as_strided asks for are elements of a tensor that lies in this way.
  bool asks_for_some_of(at::IntArrayRef sizes, at::IntArrayRef strides) const {
    const auto list = [&](const char* name) {
      return stack_[base_ + static_cast<size_t>(*op_.schema().argumentIndexWithName(name))].toIntVector();
    };
    const Dims asked = list("size");
    const Dims steps = list("stride");
    const auto is_negative = [](int64_t n) { return n < 0; };
    if (asked.size() != steps.size() || std::ranges::any_of(asked, is_negative) ||
        std::ranges::any_of(steps, is_negative)) {
      return true;  // torch says what is wrong
    }
    const auto reach = [](at::IntArrayRef n, at::IntArrayRef step) {
      return static_cast<int64_t>(at::detail::computeStorageNbytes(n, step, 1));
    };
    if (reach(asked, steps) > reach(sizes, strides)) return false;
    const Tensor there = at::zeros({reach(sizes, strides)}, at::TensorOptions(c10::kBool));
    there.as_strided(sizes, strides).fill_(true);
    return there.as_strided(asked, steps).all().item<bool>();
  }

  // An offset counts from where the memory of the whole tensor begins, wherever that is in the local one's.
  void place_offset() {
    if (starts_at_itself() || !stack_[base_].isTensor()) return;
    c10::IValue& offset = stack_[base_ + static_cast<size_t>(*op_.schema().argumentIndexWithName("storage_offset"))];
    offset = offset.toInt() + stack_[base_].toTensor().storage_offset() - begin_;
  }

  // Whether as_strided was given no storage_offset.
  bool starts_at_itself() const {
    const auto offset = op_.schema().argumentIndexWithName("storage_offset");
    return offset && stack_[base_ + static_cast<size_t>(*offset)].isNone();
  }

  // A part may lie in memory in another way than the whole: where the whole has a view and the part has none, the part
  // is copied, and the view remembers it.
  void make_viewable() {
    const Tensor& local = stack_[base_].toTensor();
    if (local.is_contiguous()) return;
    const Dims sizes = stack_[base_ + 1].toIntVector();
    const auto wanted = at::infer_size(sizes, local.numel());
    if (at::detail::computeStride(local.sizes(), local.strides(), wanted)) return;
    std::optional<c10::InferenceMode> ordinary;
    if (c10::InferenceMode::is_enabled() && !local.is_inference()) ordinary.emplace(false);
    const Tensor copy = local.contiguous();
    const InputPlan& how = plan_.inputs[0];
    origin_ = c10::make_intrusive<ViewOrigin>(local, copy, origin_, *plan_.mesh, how.shape, how.to, how.to);
    stack_[base_] = copy;
    if (viewed_numel_ == std::numeric_limits<int64_t>::max()) has_memory_ = false;
  }

  // Results of a view share memory with the tensor; where that was moved they remember the way back.
  void remember_view(const DTensorMeta& meta, const InputPlan& how, const Tensor& local) {
    origin_ = meta.origin;
    gathered_ = meta.gathered;
    viewed_spec_ = meta.spec;
    viewed_numel_ = meta.is_cut ? std::numeric_limits<int64_t>::max() : numel(meta.spec->sizes);
    has_memory_ = !meta.is_cut || (meta.is_placed && !how.moves);
    if (!how.moves && local.is_alias_of(meta.local)) return;
    origin_ = c10::make_intrusive<ViewOrigin>(meta.local, local, meta.origin, *plan_.mesh, how.shape, how.from, how.to);
  }

  void localize(c10::IValue& value, size_t argument, size_t input) {
    const Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    value = local_of(tensor, argument, input);
  }

  size_t localize_list(c10::IValue& value, size_t argument, size_t input) {
    if (value.isTensorList()) {
      c10::List<Tensor> locals;
      for (const Tensor& tensor : value.toTensorVector()) {
        locals.push_back(tensor.defined() ? local_of(tensor, argument, input) : tensor);
        ++input;
      }
      value = std::move(locals);
      return input;
    }
    c10::List<std::optional<Tensor>> locals;
    for (const c10::IValue& element : value.toListRef()) {
      const bool defined = element.isTensor() && element.toTensor().defined();
      locals.push_back(defined ? std::optional(local_of(element.toTensor(), argument, input)) : std::nullopt);
      ++input;
    }
    value = std::move(locals);
    return input;
  }

  // The operator writes into a fresh tensor; its result then goes to where the out= argument lives.
  void keep_out(c10::IValue& value, size_t argument) {
    if (!value.isTensor()) return;
    const Tensor tensor = value.toTensor();
    originals_.push_back({tensor, argument, 0, Tensor()});
    fresh_outs_.push_back(at::empty({0}, tensor.options()));
    value = fresh_outs_.back();
  }

  const Original* original(int argument) const {
    for (const Original& kept : originals_) {
      if (static_cast<int>(kept.argument) == argument) return &kept;
    }
    return nullptr;
  }

  const OutputPlan& output_plan(size_t i) const { return plan_.outputs[std::min(i, plan_.outputs.size() - 1)]; }

  // Each rank drew its own numbers: along replicated axes the first rank's count.
  void agree_on_random_values() {
    const auto agree = [&](const Tensor& local, const Placements& placements) {
      for (int64_t axis = 0; axis < plan_.mesh->ndim(); ++axis) {
        if (is_replicate(placements[static_cast<size_t>(axis)])) take_values_of(0, local, *plan_.mesh, axis);
      }
    };
    const size_t results = stack_.size() - info_.return_of.size();
    for (size_t i = 0; i < info_.return_of.size(); ++i) {
      if (stack_[results + i].isTensor()) agree(stack_[results + i].toTensor(), output_plan(i).placements);
    }
  }

  void write_back() {
    for (const Original& kept : originals_) {
      if (!kept.moved.defined()) continue;
      DTensorMeta* meta = meta_of(kept.tensor);
      if (meta == nullptr) {
        if (!kept.moved.is_alias_of(kept.tensor)) kept.tensor.copy_(kept.moved);
        continue;
      }
      const InputPlan& how = plan_.inputs[kept.input];
      // An in-place result has the placements of the output that it is.
      Placements now = how.to;
      for (size_t i = 0; i < info_.return_of.size(); ++i) {
        if (info_.return_of[i] == static_cast<int>(kept.argument)) now = output_plan(i).placements;
      }
      meta->local.copy_(sherd::detail::move(kept.moved, *plan_.mesh, how.shape, now, how.from));
    }
  }

  // Copied views of what was written, and the tensors that were written through such a view.
  void tell_of_writes() {
    c10::SmallVector<DTensorMeta*, 4> written;
    for (const Original& kept : originals_) {
      if (DTensorMeta* meta = meta_of(kept.tensor)) written.push_back(meta);
    }
    wrote_locals(written);
  }

  void wrap_results() {
    const size_t count = info_.return_of.size();
    const size_t results = stack_.size() - count;
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& value = stack_[results + i];
      if (info_.return_of[i] >= 0) {
        if (const Original* kept = original(info_.return_of[i])) {
          if (info_.arguments[kept->argument].out) {
            assign_out(kept->tensor, value.toTensor(), i);
          } else if (info_.is_inplace_view) {
            assign_view(kept->tensor, value.toTensor(), i);
          }
          value = kept->tensor;
          continue;
        }
      }
      if (value.isTensor()) {
        if (value.toTensor().defined() && !is_plain_number(value.toTensor(), i)) value = wrapped(value.toTensor(), i);
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        size_t k = 0;
        for (const Tensor& local : value.toTensorVector()) list.push_back(wrapped(local, i, k++));
        value = std::move(list);
      }
    }
  }

  // A number that an operator on a GPU returns on the CPU, such as a seed: the same on every rank, it stays as it is.
  bool is_plain_number(const Tensor& local, size_t i) const {
    if (local.device().type() == plan_.mesh->device_type() || local.dim() != 0) return false;
    for (const Placement& p : output_plan(i).placements) {
      if (!is_replicate(p)) return false;
    }
    return local.device().is_cpu();
  }

  // The k-th tensor of the i-th result.
  Tensor wrapped(const Tensor& local, size_t i, size_t k = 0) {
    const SpecPtr* checked = checked_spec(plan_, i, k);
    Tensor result = wrap(checked != nullptr ? *checked : find_spec(info_, plan_, local, i, k), local);
    if (info_.is_view || info_.is_inplace_view) tell_place(result, local);
    if (info_.is_view) {
      meta_of(result)->gathered = gathered_;
      if (viewed_.defined() && local.is_alias_of(viewed_)) share_version(local, viewed_);
      if (origin_ && local.is_alias_of(origin_->moved)) meta_of(result)->origin = origin_;
    }
    return result;
  }

  void tell_place(const Tensor& view, const Tensor& local) const {
    if (!viewed_spec_) return;  // of a plain tensor
    const bool elsewhere = info_.reads_strides && local.storage_offset() != viewed_.storage_offset();
    meta_of(view)->is_cut = elsewhere || view.numel() < viewed_numel_;
    if (meta_of(view)->is_cut) place_view({*viewed_spec_, viewed_, begin_, has_memory_}, view);
  }

  void assign_out(const Tensor& out, const Tensor& local, size_t i) {
    const Tensor result = wrapped(local, i);
    DTensorMeta* meta = meta_of(out);
    const DTensorMeta* from = meta_of(result);
    if (meta == nullptr) {  // a plain tensor counts as replicated
      const Placements whole(from->spec->placements.size(), Replicate());
      out.resize_(from->spec->sizes);
      out.copy_(move(from->local, *plan_.mesh, from->spec->sizes, from->spec->placements, whole));
      return;
    }
    if (out.sizes() == result.sizes()) {
      current_local(*meta).copy_(
          move(from->local, *plan_.mesh, from->spec->sizes, from->spec->placements, meta->spec->placements));
      return;
    }
    assign(out, from->spec, from->local);
  }

  void assign_view(const Tensor& self, const Tensor& local, size_t i) {
    const Tensor result = wrapped(local, i);
    assign(self, meta_of(result)->spec, local);
    meta_of(self)->origin = origin_;
    meta_of(self)->is_cut = meta_of(result)->is_cut;
    meta_of(self)->is_placed = meta_of(result)->is_placed;
    self.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset());
  }

  static void assign(const Tensor& tensor, const SpecPtr& spec, const Tensor& local) {
    DTensorMeta* meta = meta_of(tensor);
    meta->spec = spec;
    meta->local = local;
    meta->arrival.reset();
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec->sizes, spec->strides);
  }

  const c10::OperatorHandle& op_;
  const OpInfo& info_;
  OpPlan& plan_;
  Stack& stack_;
  const size_t base_;
  c10::SmallVector<Original, 1> originals_;
  // Torch's boxed form of an operator with several out= arguments returns references to those of the stack, which it
  // has dropped by then: something else must hold them.
  std::vector<Tensor> fresh_outs_;
  Tensor viewed_;          // what a view is a view of, as the operator gets it
  ViewOriginPtr origin_;   // of the results of a view
  GatheringPtr gathered_;  // of what a view is a view of
  SpecPtr viewed_spec_;    // the same of what a view is a view of, as the call got it
  int64_t viewed_numel_ = 0;
  int64_t begin_ = 0;  // its storage_offset()
  bool has_memory_ = false;
};

}  // namespace

void place_view(const Viewed& viewed, const Tensor& view) {
  DTensorMeta& meta = *meta_of(view);
  const bool lies_as_said = meta.local.strides() == at::IntArrayRef(meta.spec->strides) &&
                            viewed.local.sizes() == at::IntArrayRef(viewed.spec.sizes) &&
                            viewed.local.strides() == at::IntArrayRef(viewed.spec.strides) &&
                            viewed.local.itemsize() == view.itemsize();
  if (!meta.spec->is_whole || !viewed.has_memory || !lies_as_said) return;
  meta.is_placed = true;
  view.unsafeGetTensorImpl()->set_storage_offset(viewed.begin + meta.local.storage_offset() -
                                                 viewed.local.storage_offset());
}

void execute(const c10::OperatorHandle& op, const OpInfo& info, OpPlan& plan, Stack& stack) {
  if (plan.any_moves) {
    check_moves(info, plan);
    check_loss_parallel(info, plan);
    if (MoveListener* listener = move_listener()) listener->operator_moves(op, info, plan, stack);
  }
  if (!plan.mesh->coordinate()) {
    execute_outside(op, info, plan, stack);
    return;
  }
  Execution(op, info, plan, stack).run();
}

}  // namespace sherd::detail
