// The slow path of a dispatch: asks the rules, chooses placements, and writes down what to do.

#include <ATen/WrapDimUtils.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "plan/propagate.h"
#include "rules/bind.h"
#include "rules/registry.h"
#include "tensor/dispatch.h"
#include "tensor/infer.h"
#include "tensor/local_kernels.h"
#include "tensor/meta.h"
#include "tensor/op_plan.h"
#include "tensor/rewrites.h"
#include "tensor/rule_for.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using rules::BoundRule;
using rules::OpCall;

struct Operand {
  at::Tensor tensor;
  DTensorMeta* meta = nullptr;
  size_t argument = 0;
};

std::vector<Operand> operands_of(const OpInfo& info, const torch::jit::Stack& stack) {
  std::vector<Operand> result;
  const size_t base = stack.size() - info.arguments.size();
  const auto add = [&](const at::Tensor& tensor, size_t argument) {
    result.push_back({tensor, meta_of(tensor), argument});
  };
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].out) continue;
    const c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      add(value.isTensor() ? value.toTensor() : at::Tensor(), i);
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        add(element.isTensor() ? element.toTensor() : at::Tensor(), i);
      }
    }
  }
  return result;
}

DeviceMesh common_mesh(const OpInfo& info, const std::vector<Operand>& operands, const torch::jit::Stack& stack) {
  const Operand* first = nullptr;
  for (const Operand& operand : operands) {
    if (operand.meta == nullptr) continue;
    if (first == nullptr) first = &operand;
    if (operand.meta->spec->mesh == first->meta->spec->mesh) continue;
    std::string wanted;
    for (int64_t i = 0; i < first->meta->spec->mesh.ndim(); ++i) wanted += i == 0 ? "Replicate()" : ", Replicate()";
    throw_value_error(
        ErrorText(info.short_name(), "operands live on different meshes")
            .fact("one", describe(*first->meta->spec, first->tensor.scalar_type()))
            .fact("other", describe(*operand.meta->spec, operand.tensor.scalar_type()))
            .help("sherd::distribute_tensor(sherd::full_tensor(other), sherd::mesh_of(one), {" + wanted + "})"));
  }
  if (first == nullptr) {  // only the out= arguments are distributed
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) {
        if (const DTensorMeta* meta = meta_of(value.toTensor())) return meta->spec->mesh;
      }
    }
    // A generator of sherd's brought a call of plain tensors here that sherd does not draw.
    throw c10::NotImplementedError(ErrorText(info.short_name(), "sherd's generators do not draw this")
                                       .help("leave the generator out: torch draws from its own")
                                       .str());
  }
  return first->meta->spec->mesh;
}

bool has_dims(const BoundRule& rule, const std::vector<std::vector<Geometry>>& results) {
  for (size_t o = 0; o < rule.outputs.size() && o < results.size(); ++o) {
    if (results[o].size() != 1 || !results[o][0].defined) continue;
    if (rule.outputs[o].dims.size() != results[o][0].sizes.size()) return false;
  }
  return true;
}

// A rule for an operator that torch itself tags as pointwise.
std::optional<BoundRule> pointwise_rule(const OpCall& call) {
  static constexpr rules::Rule kRule = rules::parse_rule("* -> *");
  return rules::bind(kRule, call);
}

}  // namespace

std::optional<BoundRule> rule_for(const OpInfo& info, const OpCall& call,
                                  const std::optional<std::vector<std::vector<Geometry>>>& results) {
  if (auto found = rules::look_up(call, nullptr)) {
    // A row speaks of the usual shapes. A call that returns others (a gradient summed over a broadcast, say) has none;
    // a rule of the user's is told to be wrong instead.
    if (found->yours || !results || has_dims(found->rule, *results)) return std::move(found->rule);
    return std::nullopt;
  }
  if (info.is_pointwise) return pointwise_rule(call);
  return std::nullopt;
}

namespace {

class PlanMaker {
 public:
  PlanMaker(const c10::OperatorHandle& op, const OpInfo& info, const torch::jit::Stack& stack)
      : op_(op),
        stack_(stack),
        info_(info),
        operands_(operands_of(info, stack)),
        mesh_(common_mesh(info, operands_, stack)),
        call_(info.call(op.schema(), stack)),
        plan_(std::make_unique<OpPlan>()) {
    plan_->mesh = mesh_;
    plan_->broadcasts = info.is_random;
    take_outs();
    check_device();
  }

  std::unique_ptr<OpPlan> run() {
    for (const Operand& operand : operands_) {
      if (operand.meta != nullptr) plan_->specs.push_back(operand.meta->spec);
      plan::InputTensor input;
      input.placements.assign(static_cast<size_t>(mesh_.ndim()), Replicate());
      if (operand.tensor.defined()) {
        input.shape = operand.tensor.sizes().vec();
        input.element_size = static_cast<int64_t>(operand.tensor.element_size());
        if (operand.meta != nullptr) input.placements = operand.meta->spec->placements;
      }
      held_.push_back(input.placements);
      inputs_.push_back(std::move(input));
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (used_whole(i)) bring_together(i);
    }
    results_ = infer_results(op_, info_, stack_);
    auto rule = as_c10_errors([&] { return rule_for(info_, call_, results_); });
    if (rule) {
      reduce_small_types_first(*rule);
      follow(*rule);
    } else {
      run_whole();
    }
    for (const InputPlan& input : plan_->inputs) {
      plan_->any_moves |= input.moves;
      plan_->bytes += input.move.bytes;
    }
    find_written_and_moved();
    know_results();
    if (plan_->no_rule) note_missing_rule();
    plan_->is_view = info_.is_view;
    plan_->direct = mesh_.coordinate() && !plan_->any_moves && plan_->kernel == nullptr && !plan_->pads &&
                    !plan_->broadcasts && !plan_->writes_back && !info_.has_out && !info_.reads_strides &&
                    !info_.is_inplace_view;
    return std::move(plan_);
  }

 private:
  // Before anything is computed: the operator would write to a plain tensor, and it would be too late to refuse. The
  // plan's key has the specs of these tensors, too.
  void take_outs() {
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      const c10::IValue& value = stack_[stack_.size() - info_.arguments.size() + i];
      if (!info_.arguments[i].out || !value.isTensor()) continue;
      const at::Tensor out = value.toTensor();
      const DTensorMeta* meta = meta_of(out);
      if (meta == nullptr) continue;  // a plain tensor: every rank gets all of the result
      if (!(meta->spec->mesh == mesh_)) {
        throw_value_error(ErrorText(info_.short_name(), "out= lives on another mesh than the inputs")
                              .fact("out", describe(*meta->spec, out.scalar_type()))
                              .fact("inputs", "on " + to_string(mesh_))
                              .help("leave out= away, or pass a DTensor on the same mesh"));
      }
      plan_->specs.push_back(meta->spec);
    }
  }

  // Before anything is copied: x.to("cuda") of a tensor on a mesh of CPUs.
  void check_device() const {
    for (size_t i = stack_.size() - info_.arguments.size(); i < stack_.size(); ++i) {
      if (!stack_[i].isDevice()) continue;
      const c10::Device asked = stack_[i].toDevice();
      if (asked.type() != mesh_.device_type() && !asked.is_meta()) refuse_device(info_, mesh_, asked);
    }
  }

  // Parts of booleans are put together by "or", which is no sum: 1.5 times what two ranks say is not 1.5 of each. Those
  // of small integers are a sum only as long as they are of that type. A view computes nothing.
  void reduce_small_types_first(BoundRule& rule) const {
    if (info_.is_view || info_.is_inplace_view) return;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = operands_[i];
      if (operand.meta == nullptr || !operand.meta->spec->has_partial) continue;
      const c10::ScalarType type = operand.tensor.scalar_type();
      const bool reduces = c10::isIntegralType(type, false) ? is_widened(type) : type == c10::kBool;
      if (reduces) std::erase_if(rule.linear, [&](uint64_t set) { return rules::has_input(set, i); });
    }
  }

  // Whether a result may be of a type that sums of these integers must not be converted to part by part.
  bool is_widened(c10::ScalarType type) const {
    if (!is_reduced_before(type, c10::kDouble)) return false;  // large enough
    // A number beside tensors (mul.Scalar) may make a float of them, and is no part of the plan's key.
    const auto number = op_.schema().argumentIndexWithName("other");
    if (number && !writes_in_place() && info_.arguments[static_cast<size_t>(*number)].kind == ArgumentKind::ignored) {
      return true;
    }
    const auto results = run_without_data(op_, info_, stack_);
    if (!results) return true;  // nobody knows
    const auto is_larger = [&](const at::Tensor& tensor) {
      return tensor.defined() && is_reduced_before(type, tensor.scalar_type());
    };
    return std::any_of(results->begin(), results->end(), [&](const c10::IValue& value) {
      if (value.isTensor()) return is_larger(value.toTensor());
      if (!value.isTensorList()) return false;
      const std::vector<at::Tensor> list = value.toTensorVector();
      return std::any_of(list.begin(), list.end(), is_larger);
    });
  }

  // A parameter that is to be gathered on use is used where it meets something else than its like: a gradient or a
  // state that lies as it does, or another parameter.
  bool used_whole(size_t i) const {
    const DTensorMeta* meta = operands_[i].meta;
    if (meta == nullptr || meta->spec->gathers == 0 || info_.arguments[operands_[i].argument].written) return false;
    return std::any_of(operands_.begin(), operands_.end(), [&](const Operand& other) {
      if (!other.tensor.defined() || other.tensor.dim() == 0) return false;
      if (other.meta == nullptr) return true;
      const Spec& spec = *other.meta->spec;
      return spec.gathers == 0 &&
             !(info_.is_pointwise && spec.sizes == meta->spec->sizes && spec.placements == meta->spec->placements);
    });
  }

  // Placements are chosen as if it were whole along those axes.
  void bring_together(size_t i) {
    for (size_t axis = 0; axis < inputs_[i].placements.size(); ++axis) {
      if ((operands_[i].meta->spec->gathers >> axis & 1) != 0) inputs_[i].placements[axis] = Replicate();
    }
  }

  // The placements that an in-place operator should keep: those of the one tensor that it writes.
  std::optional<Placements> kept() const {
    if (info_.is_inplace_view) return std::nullopt;
    for (const Operand& operand : operands_) {
      if (!info_.arguments[operand.argument].written || !operand.tensor.defined()) continue;
      // Statistics that are updated on the side say nothing about the result.
      if (!info_.return_of.empty() && info_.return_of.front() != static_cast<int>(operand.argument)) continue;
      if (operand.meta != nullptr) return operand.meta->spec->placements;
      return Placements(static_cast<size_t>(mesh_.ndim()), Replicate());  // a plain tensor is whole on every rank
    }
    return std::nullopt;
  }

  void follow(const BoundRule& rule) {
    const auto keep = kept();
    auto choice = keep ? plan::propagate(rule, mesh_.mesh(), inputs_, keep) : std::nullopt;
    if (!choice) choice = plan::propagate(rule, mesh_.mesh(), inputs_);
    for (size_t i = 0; i < inputs_.size(); ++i) add_input(i, choice->inputs[i]);
    if (rule.outputs.empty()) {
      plan_->outputs.push_back({.placements = Placements(static_cast<size_t>(mesh_.ndim()), Replicate())});
    }
    for (size_t o = 0; o < rule.outputs.size(); ++o) {
      OutputPlan output;
      output.placements = choice->outputs[o];
      output.sizes.assign(rule.outputs[o].dims.size(), -1);
      for (const Placement& p : output.placements) {
        if (!is_shard(p)) continue;
        const auto dim = static_cast<size_t>(sharded_dim(p));
        output.sizes[dim] = size_of(rule, rule.outputs[o], dim);
      }
      plan_->outputs.push_back(std::move(output));
    }
    for (const rules::SizeArgument& size : rule.sizes) edit_size(rule, size);
    if (rule.window) edit_window(rule);
    for (const rules::IntArgument& number : rule.ints) {
      if (!mesh_.coordinate()) break;
      const auto input = static_cast<size_t>(number.input);
      const Layout layout{mesh_.mesh(), inputs_[input].shape, plan_->inputs[input].to};
      const Dims local = local_shape(layout, *mesh_.coordinate());
      plan_->int_edits.push_back({number.argument, local[static_cast<size_t>(number.dim)]});
    }
    if (choice->masked) find_mask(rule);
    if (rules::base_name(info_.name).starts_with("aten::squeeze")) plan_->dims = squeezed_dims();
    plan_->kernel = local_kernel_for(info_, *plan_, choice->masked);
    plan_->pads = must_pad(rule);
    for (SizeEdit& edit : plan_->edits) {
      for (int64_t& n : edit.sizes) n = plan_->pads && n == 0 ? 1 : n;
    }
    for (const rules::BoundOperand& input : rule.inputs) plan_->adds |= input.added && !input.unused;
  }

  static int64_t size_of(const BoundRule& rule, const rules::BoundOperand& operand, size_t dim) {
    if (operand.window && operand.window->dim == dim) return operand.window->size;
    int64_t size = 1;
    for (const int16_t f : operand.dims[dim]) size *= rule.factors[static_cast<size_t>(f)].size;
    return size;
  }

  // Where a rank has only some rows of a window's factor, its window is what these have of it.
  void edit_window(const BoundRule& rule) {
    if (!mesh_.coordinate()) return;
    const bool on_output = rule.outputs[0].window.has_value();
    const rules::Window& window = on_output ? *rule.outputs[0].window : *rule.inputs[0].window;
    const Placements& placements = on_output ? plan_->inputs[0].to : plan_->outputs[0].placements;
    Dims shape = inputs_[0].shape;
    shape[window.dim] = rule.factors[static_cast<size_t>(rule.inputs[0].dims[window.dim][0])].size;
    const Layout layout{mesh_.mesh(), shape, placements};
    const int64_t rows = local_shape(layout, *mesh_.coordinate())[window.dim];
    if (rows == shape[window.dim]) return;
    const int64_t first = rows == 0 ? 0 : local_offset(layout, *mesh_.coordinate())[window.dim];
    const int64_t begin = window.rows_before(first);
    const int64_t end = window.rows_before(first + rows);
    const int64_t start = window.start + begin * window.step - first;
    const bool none = rows == 0 || begin == end;
    plan_->int_edits.push_back({rule.window->start, none ? 0 : start});
    plan_->int_edits.push_back({rule.window->end, none ? 0 : start + (end - begin - 1) * window.step + 1});
  }

  // Whether it changes one of its inputs; an out= is none.
  bool writes_in_place() const {
    return std::any_of(info_.arguments.begin(), info_.arguments.end(),
                       [](const ArgumentInfo& argument) { return argument.written && !argument.out; });
  }

  // Many operators refuse a tensor without rows, or crash on it. Element-wise ones and views do not. What is written in
  // place cannot have a row more.
  bool must_pad(const BoundRule& rule) const {
    if (!mesh_.coordinate() || info_.is_pointwise || writes_in_place() || info_.is_view || plan_->kernel != nullptr ||
        !plan_->int_edits.empty() || rule.takes_empty) {
      return false;
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!operands_[i].tensor.defined()) continue;
      const Dims& whole = inputs_[i].shape;
      const Dims local = local_shape({mesh_.mesh(), whole, plan_->inputs[i].to}, *mesh_.coordinate());
      for (size_t d = 0; d < whole.size(); ++d) {
        if (local[d] == 0 && whole[d] > 0) return true;
      }
    }
    return false;
  }

  void add_input(size_t i, const Placements& to) {
    InputPlan input;
    input.from = held_[i];
    input.to = to;
    input.shape = inputs_[i].shape;
    input.moves = operands_[i].tensor.defined() && input.from != input.to;
    if (input.moves) {
      input.move = plan::plan_redistribution(mesh_.mesh(), input.shape, inputs_[i].element_size, input.from, input.to);
    }
    plan_->inputs.push_back(std::move(input));
  }

  // The argument that holds an output's size: dims that are sharded become local ones.
  void edit_size(const BoundRule& rule, const rules::SizeArgument& size) {
    const OutputPlan& output = plan_->outputs[static_cast<size_t>(size.output)];
    if (!mesh_.coordinate()) return;
    Dims wanted;
    for (const rules::PlainArgument& argument : call_.plain) {
      if (argument.argument == size.argument) wanted = std::get<Dims>(argument.value);
    }
    Dims global = wanted;
    for (size_t d = 0; d < global.size(); ++d) {
      if (global[d] == -1 || output.sizes[d] != -1) {
        global[d] = size_of(rule, rule.outputs[static_cast<size_t>(size.output)], d);
      }
    }
    const Dims local = local_shape({mesh_.mesh(), global, output.placements}, *mesh_.coordinate());
    for (size_t d = 0; d < wanted.size(); ++d) {
      if (output.sizes[d] != -1 || wanted[d] == -1) wanted[d] = local[d];
    }
    plan_->edits.push_back({size.argument, std::move(wanted)});
  }

  // The dims of size 1 among those that squeeze names, or among all.
  Dims squeezed_dims() const {
    const Dims& shape = inputs_[0].shape;
    const auto ndim = static_cast<int64_t>(shape.size());
    Dims dims;
    const std::optional<Dims> named = call_.list("dim");
    for (int64_t d = 0; d < ndim; ++d) {
      bool meant = !named;
      for (const int64_t n : named.value_or(Dims())) meant |= at::maybe_wrap_dim(n, ndim) == d;
      if (meant && shape[static_cast<size_t>(d)] == 1) dims.push_back(d);
    }
    return dims;
  }

  // The rows that this rank answers for, where a factor is sharded that is looked up by index.
  void find_mask(const BoundRule& rule) {
    if (!mesh_.coordinate()) return;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (size_t d = 0; d < rule.inputs[i].dims.size(); ++d) {
        const auto& dim = rule.inputs[i].dims[d];
        if (dim.empty() || rule.factors[static_cast<size_t>(dim[0])].kind != rules::FactorKind::mask) continue;
        const Layout layout{mesh_.mesh(), inputs_[i].shape, plan_->inputs[i].to};
        plan_->all_rows = inputs_[i].shape[d];
        plan_->mask_rows = local_shape(layout, *mesh_.coordinate())[d];
        plan_->mask_offset = local_offset(layout, *mesh_.coordinate())[d];
        return;
      }
    }
  }

  void run_whole() {
    plan_->no_rule = true;
    const Placements whole(static_cast<size_t>(mesh_.ndim()), Replicate());
    for (size_t i = 0; i < inputs_.size(); ++i) add_input(i, whole);
    plan_->outputs.push_back({.placements = whole});
  }

  // Specs that follow from the call alone, so that all ranks have the same, those with degenerate parts, too.
  void know_results() {
    const DTensorMeta* viewed = info_.is_view ? operands_.front().meta : nullptr;
    const uint64_t gathers = viewed != nullptr ? viewed->spec->gathers : 0;
    for (OutputPlan& output : plan_->outputs) output.gathers = gathers;
    if (!results_) return;
    for (size_t i = 0; i < results_->size(); ++i) {
      if (i >= plan_->outputs.size()) plan_->outputs.push_back(plan_->outputs.back());
      OutputPlan& output = plan_->outputs[i];
      output.gathers = gathers;
      output.known.clear();
      for (const Geometry& geometry : (*results_)[i]) {
        if (!geometry.defined) {
          output.known.push_back(nullptr);
          continue;
        }
        check_rule(geometry, output);
        output.known.push_back(
            intern_spec(mesh_, output.placements, geometry.sizes, geometry.strides, nullptr, gathers));
      }
    }
  }

  // A rule that does not describe its operator would give wrong numbers without a word.
  void check_rule(const Geometry& geometry, const OutputPlan& output) const {
    bool fits = output.sizes.empty() || output.sizes.size() == geometry.sizes.size();
    for (size_t d = 0; d < output.sizes.size() && fits; ++d) {
      fits = output.sizes[d] == -1 || output.sizes[d] == geometry.sizes[d];
    }
    if (fits) return;
    Dims said = output.sizes;
    throw c10::ValueError(ErrorText(info_.short_name(), "its rule does not describe it")
                              .fact("rule", rules::first_rule_text(info_.name))
                              .fact("result", to_string(geometry.sizes))
                              .fact("rule says", to_string(said) + " for placements " + to_string(output.placements))
                              .help("sherd::register_rule(\"" + info_.name + "\", \"...\")")
                              .str());
  }

  void find_written_and_moved() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      plan_->writes_back |= info_.arguments[operands_[i].argument].written && plan_->inputs[i].moves;
    }
  }

  void note_missing_rule() const {
    const std::string name = info_.name + (info_.overload.empty() ? "" : "." + info_.overload);
    if (strict()) {
      throw c10::NotImplementedError(ErrorText(info_.short_name(), "no rule says how this operator is sharded")
                                         .fact("operator", name)
                                         .fact("it would gather", plan::bytes_text(plan_->bytes))
                                         .help("sherd::register_rule(\"" + info_.name +
                                               "\", rule), see docs/rules.md, or sherd::set_strict(false)")
                                         .str());
    }
    const std::string what = "no rule for " + name;  // said once, however much other calls gather
    log_once(what, what + ": it runs whole on every rank, gathering " + plan::bytes_text(plan_->bytes));
  }

  const c10::OperatorHandle& op_;
  const torch::jit::Stack& stack_;
  const OpInfo& info_;
  std::vector<Operand> operands_;
  DeviceMesh mesh_;
  OpCall call_;
  std::vector<plan::InputTensor> inputs_;
  std::vector<Placements> held_;                               // where the inputs are
  std::optional<std::vector<std::vector<Geometry>>> results_;  // as they are known from the call alone
  std::unique_ptr<OpPlan> plan_;
};

}  // namespace

std::unique_ptr<OpPlan> make_plan(const c10::OperatorHandle& op, const OpInfo& info, const torch::jit::Stack& stack) {
  return PlanMaker(op, info, stack).run();
}

}  // namespace sherd::detail
