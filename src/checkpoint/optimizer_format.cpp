#include "checkpoint/optimizer_format.h"

#include <ATen/ops/full_like.h>
#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "checkpoint/optimizer_values.h"
#include "sherd/error.h"

// The fields stand in Python's order. `at(o)` names a member of libtorch's classes: TORCH_ARG makes a function of each.

namespace sherd::detail {
namespace {

using at::Tensor;
using namespace torch::optim;

template <class Options, class At>
GroupField option(const char* name, At at) {
  return {name, [at](OptimizerOptions& o) { return written(at(static_cast<Options&>(o))); },
          [at](OptimizerOptions& o, const StateValue& value) { read(value, at(static_cast<Options&>(o))); }};
}

// What libtorch does not have.
GroupField fixed(const char* name, const StateValue& value, bool matters = false) {
  return {name, [value](OptimizerOptions&) { return value; }, {}, matters};
}
GroupField unknown_flag(const char* name) { return fixed(name, false); }
GroupField unknown_choice(const char* name) { return fixed(name, {}); }
GroupField maximize() { return fixed("maximize", false, true); }

bool always(OptimizerOptions&, const OptimizerParamState&) { return true; }
bool every_time(OptimizerOptions&) { return true; }
double zero(OptimizerOptions&) { return 0; }

using Needed = std::function<bool(OptimizerOptions&, const OptimizerParamState&)>;

// A tensor of the parameter's size.
template <class State, class At>
StateField moment(const char* name, At at, Needed needed = always,
                  std::function<double(OptimizerOptions&)> initial = zero) {
  return {name,
          true,
          [at](const OptimizerParamState& s) { return written(at(const_cast<State&>(static_cast<const State&>(s)))); },
          [at](OptimizerParamState& s, const StateValue& tensor) { at(static_cast<State&>(s)) = *tensor.tensor(); },
          std::move(needed),
          std::move(initial)};
}

template <class State, class At>
StateField value(const char* name, At at, Needed needed = always) {
  return {name, false,
          [at](const OptimizerParamState& s) { return written(at(const_cast<State&>(static_cast<const State&>(s)))); },
          [at](OptimizerParamState& s, const StateValue& value) { read(value, at(static_cast<State&>(s))); },
          std::move(needed)};
}

template <class State>
StateField steps() {
  StateField field = value<State>("step", [](State& s) -> int64_t& { return s.step(); });
  field.get = [](const OptimizerParamState& s) { return written_steps(static_cast<const State&>(s).step()); };
  return field;
}

template <class Optimizer, class State>
OptimizerFormat format(const char* name, std::vector<GroupField> group, std::vector<StateField> state) {
  return {name,
          [](const torch::optim::Optimizer& o) { return dynamic_cast<const Optimizer*>(&o) != nullptr; },
          std::move(group),
          std::move(state),
          [] { return std::make_unique<State>(); },
          every_time,
          every_time};
}

OptimizerFormat sgd() {
  using O = SGDOptions;
  using S = SGDParamState;
  OptimizerFormat result =
      format<SGD, S>("SGD",
                     {option<O>("lr", [](O& o) -> double& { return o.lr(); }),
                      option<O>("momentum", [](O& o) -> double& { return o.momentum(); }),
                      option<O>("dampening", [](O& o) -> double& { return o.dampening(); }),
                      option<O>("weight_decay", [](O& o) -> double& { return o.weight_decay(); }),
                      option<O>("nesterov", [](O& o) -> bool& { return o.nesterov(); }), maximize(),
                      unknown_choice("foreach"), unknown_flag("differentiable"), unknown_choice("fused")},
                     {moment<S>("momentum_buffer", [](S& s) -> Tensor& { return s.momentum_buffer(); })});
  result.has_state = [](OptimizerOptions& o) { return static_cast<O&>(o).momentum() != 0; };
  // The first step does not dampen the gradient, the others do.
  result.may_begin = [](OptimizerOptions& o) { return static_cast<O&>(o).dampening() == 0; };
  return result;
}

template <class Optimizer, class O, class S>
OptimizerFormat adam(const char* name, bool decoupled) {
  const auto amsgrad = [](OptimizerOptions& o, const OptimizerParamState&) { return static_cast<O&>(o).amsgrad(); };
  return format<Optimizer, S>(name,
                              {option<O>("lr", [](O& o) -> double& { return o.lr(); }),
                               option<O>("betas", [](O& o) -> std::tuple<double, double>& { return o.betas(); }),
                               option<O>("eps", [](O& o) -> double& { return o.eps(); }),
                               option<O>("weight_decay", [](O& o) -> double& { return o.weight_decay(); }),
                               option<O>("amsgrad", [](O& o) -> bool& { return o.amsgrad(); }), maximize(),
                               unknown_choice("foreach"), unknown_flag("capturable"), unknown_flag("differentiable"),
                               unknown_choice("fused"), fixed("decoupled_weight_decay", decoupled, true)},
                              {steps<S>(), moment<S>("exp_avg", [](S& s) -> Tensor& { return s.exp_avg(); }),
                               moment<S>("exp_avg_sq", [](S& s) -> Tensor& { return s.exp_avg_sq(); }),
                               moment<S>(
                                   "max_exp_avg_sq", [](S& s) -> Tensor& { return s.max_exp_avg_sq(); }, amsgrad)});
}

OptimizerFormat adagrad() {
  using O = AdagradOptions;
  using S = AdagradParamState;
  return format<Adagrad, S>(
      "Adagrad",
      {option<O>("lr", [](O& o) -> double& { return o.lr(); }),
       option<O>("lr_decay", [](O& o) -> double& { return o.lr_decay(); }),
       option<O>("eps", [](O& o) -> double& { return o.eps(); }),
       option<O>("weight_decay", [](O& o) -> double& { return o.weight_decay(); }),
       option<O>("initial_accumulator_value", [](O& o) -> double& { return o.initial_accumulator_value(); }),
       unknown_choice("foreach"), maximize(), unknown_flag("differentiable"), unknown_choice("fused")},
      {steps<S>(), moment<S>(
                       "sum", [](S& s) -> Tensor& { return s.sum(); }, always,
                       [](OptimizerOptions& o) { return static_cast<O&>(o).initial_accumulator_value(); })});
}

OptimizerFormat rmsprop() {
  using O = RMSpropOptions;
  using S = RMSpropParamState;
  const auto momentum = [](OptimizerOptions& o, const OptimizerParamState&) {
    return static_cast<O&>(o).momentum() > 0;
  };
  const auto centered = [](OptimizerOptions& o, const OptimizerParamState&) { return static_cast<O&>(o).centered(); };
  return format<RMSprop, S>(
      "RMSprop",
      {option<O>("lr", [](O& o) -> double& { return o.lr(); }),
       option<O>("momentum", [](O& o) -> double& { return o.momentum(); }),
       option<O>("alpha", [](O& o) -> double& { return o.alpha(); }),
       option<O>("eps", [](O& o) -> double& { return o.eps(); }),
       option<O>("centered", [](O& o) -> bool& { return o.centered(); }),
       option<O>("weight_decay", [](O& o) -> double& { return o.weight_decay(); }), unknown_flag("capturable"),
       unknown_choice("foreach"), maximize(), unknown_flag("differentiable")},
      {steps<S>(), moment<S>("square_avg", [](S& s) -> Tensor& { return s.square_avg(); }),
       moment<S>(
           "momentum_buffer", [](S& s) -> Tensor& { return s.momentum_buffer(); }, momentum),
       moment<S>(
           "grad_avg", [](S& s) -> Tensor& { return s.grad_avg(); }, centered)});
}

OptimizerFormat lbfgs() {
  using O = LBFGSOptions;
  using S = LBFGSParamState;
  // Before the first step there is no direction yet.
  const auto after_a_step = [](OptimizerOptions&, const OptimizerParamState& s) {
    return static_cast<const S&>(s).n_iter() > 0;
  };
  OptimizerFormat result = format<LBFGS, S>(
      "LBFGS",
      {option<O>("lr", [](O& o) -> double& { return o.lr(); }),
       option<O>("max_iter", [](O& o) -> int64_t& { return o.max_iter(); }),
       option<O>("max_eval", [](O& o) -> std::optional<int64_t>& { return o.max_eval(); }),
       option<O>("tolerance_grad", [](O& o) -> double& { return o.tolerance_grad(); }),
       option<O>("tolerance_change", [](O& o) -> double& { return o.tolerance_change(); }),
       option<O>("history_size", [](O& o) -> int64_t& { return o.history_size(); }),
       option<O>("line_search_fn", [](O& o) -> std::optional<std::string>& { return o.line_search_fn(); })},
      {value<S>("func_evals", [](S& s) -> int64_t& { return s.func_evals(); }),
       value<S>("n_iter", [](S& s) -> int64_t& { return s.n_iter(); }),
       value<S>(
           "al", [](S& s) -> std::optional<std::vector<Tensor>>& { return s.al(); }, after_a_step),
       value<S>(
           "d", [](S& s) -> Tensor& { return s.d(); }, after_a_step),
       value<S>(
           "t", [](S& s) -> double& { return s.t(); }, after_a_step),
       value<S>(
           "old_dirs", [](S& s) -> std::deque<Tensor>& { return s.old_dirs(); }, after_a_step),
       value<S>(
           "old_stps", [](S& s) -> std::deque<Tensor>& { return s.old_stps(); }, after_a_step),
       value<S>(
           "ro", [](S& s) -> std::deque<Tensor>& { return s.ro(); }, after_a_step),
       value<S>(
           "H_diag", [](S& s) -> Tensor& { return s.H_diag(); }, after_a_step),
       value<S>(
           "prev_flat_grad", [](S& s) -> Tensor& { return s.prev_flat_grad(); }, after_a_step),
       value<S>(
           "prev_loss", [](S& s) -> double& { return s.prev_loss(); }, after_a_step)});
  result.is_shared = true;
  for (StateField& field : result.state) field.may_lack = field.name == "al";
  return result;
}

const std::vector<OptimizerFormat>& formats() {
  static const std::vector<OptimizerFormat> all = {sgd(),     adam<Adam, AdamOptions, AdamParamState>("Adam", false),
                                                   adagrad(), adam<AdamW, AdamWOptions, AdamWParamState>("AdamW", true),
                                                   rmsprop(), lbfgs()};
  return all;
}

}  // namespace

const OptimizerFormat& format_of(const char* operation, const torch::optim::Optimizer& optimizer) {
  std::string known;
  for (const OptimizerFormat& format : formats()) {
    if (format.is(optimizer)) return format;
    known += (known.empty() ? "" : ", ") + format.name;
  }
  throw c10::NotImplementedError(ErrorText(operation, "the optimizer is of a class that is not known")
                                     .fact("known", known)
                                     .help("save its state by a sherd::Stateful of your own")
                                     .str());
}

std::unique_ptr<OptimizerParamState> initial_state(const OptimizerFormat& format, const Tensor& parameter,
                                                   OptimizerOptions& options) {
  auto state = format.make_state();
  for (const StateField& field : format.state) {
    if (!field.like_parameter || !field.needed(options, *state)) continue;
    field.set(*state, at::full_like(parameter.detach(), field.initial(options), {}, at::MemoryFormat::Preserve));
  }
  return state;
}

}  // namespace sherd::detail
