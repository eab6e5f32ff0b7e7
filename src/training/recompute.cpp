// fn runs without gradients in forward, and with them inside backward, where the graph that it makes is walked at once.
// Keeping the graph of the first run and making again only what it saved would serve torch::autograd::grad() too, but
// the hooks for saved tensors are Python's alone.

#include "sherd/recompute.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "comm/errors.h"
#include "random/draw_again.h"
#include "tensor/switches.h"
#include "training/autocast_state.h"
#include "training/torch_draws.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

std::vector<bool> which_defined(const std::vector<Tensor>& tensors) {
  std::vector<bool> which;
  for (const Tensor& tensor : tensors) which.push_back(tensor.defined());
  return which;
}

std::vector<Tensor> defined_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> defined;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) defined.push_back(tensor);
  }
  return defined;
}

// The inverse.
std::vector<Tensor> spread(const std::vector<Tensor>& defined, const std::vector<bool>& which) {
  std::vector<Tensor> tensors(which.size());
  size_t next = 0;
  for (size_t i = 0; i < which.size(); ++i) {
    if (which[i]) tensors[i] = defined[next++];
  }
  return tensors;
}

// What a second run needs beside the inputs.
struct Kept : torch::CustomClassHolder {
  Kept(TensorsFunction f, const std::vector<Tensor>& given)
      : fn(std::move(f)),
        inputs(which_defined(given)),
        draws(Draws::now()),
        torch_draws(TorchDraws::now(given)),
        autocast(AutocastState::now()),
        moves(redistribution_mode()) {}

  // Of the defined inputs, the defined outputs.
  std::vector<Tensor> call(const std::vector<Tensor>& given) {
    const std::vector<Tensor> results = fn(spread(given, inputs));
    outputs = which_defined(results);
    return defined_of(results);
  }

  TensorsFunction fn;
  std::vector<bool> inputs;   // which are defined: autograd takes no others
  std::vector<bool> outputs;  // the same, once it ran
  Draws draws;
  TorchDraws torch_draws;
  AutocastState autocast;
  ExplicitRedistribution::Mode moves;
};
using KeptPtr = c10::intrusive_ptr<Kept>;

// fn as it ran before.
std::vector<Tensor> run_again(Kept& kept, const std::vector<Tensor>& inputs) {
  const DrawAgain same_numbers(kept.draws);
  const AutocastScope same_casts(kept.autocast);
  const ExplicitRedistribution same_moves(kept.moves);
  struct PutBack {
    TorchDraws states;
    ~PutBack() { states.exchange(); }
  };
  const PutBack back{kept.torch_draws.exchange()};
  const at::AutoGradMode with_gradients(true);
  return kept.call(inputs);
}

void check_backward() {
  if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) {
    throw_value_error(ErrorText("recompute", "the gradients of some tensors alone were asked for")
                          .help("loss.backward(), which gives every parameter its gradient; recompute cannot serve "
                                "torch::autograd::grad() or backward() with inputs"));
  }
  if (c10::GradMode::is_enabled()) {
    throw_value_error(ErrorText("recompute", "a gradient of the gradient was asked for")
                          .help("loss.backward() without create_graph, or call the function without recompute"));
  }
}

struct Recompute : Function<Recompute> {
  // `anchor` requires a gradient, so that backward comes by even where no input does: parameters inside fn may.
  static variable_list forward(AutogradContext* context, const Tensor& /*anchor*/, const KeptPtr& kept,
                               at::TensorList inputs) {
    context->set_materialize_grads(false);
    context->save_for_backward(inputs.vec());
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    const AutocastScope uncached(kept->autocast);
    return kept->call(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    check_backward();
    std::vector<Tensor> inputs;
    for (const Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    }
    const auto kept = context->saved_data["kept"].toCapsule();
    const std::vector<Tensor> outputs = run_again(*static_cast<Kept*>(kept.get()), inputs);
    variable_list roots;
    variable_list of_roots;
    if (outputs.size() != grads.size()) {
      throw_value_error(ErrorText("recompute", "the function returned another number of tensors when it ran again")
                            .fact("first", std::to_string(grads.size()))
                            .fact("now", std::to_string(outputs.size()))
                            .help("a function that depends on its arguments alone"));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!grads[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      of_roots.push_back(grads[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
    variable_list results(2);
    for (const Tensor& input : inputs) results.push_back(input.grad());
    return results;
  }
};

}  // namespace

std::vector<Tensor> recompute_list(TensorsFunction fn, const std::vector<Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return fn(inputs);
  const auto kept = c10::make_intrusive<Kept>(std::move(fn), inputs);
  const Tensor anchor = at::empty({0}, at::TensorOptions(c10::kFloat)).requires_grad_();
  const std::vector<Tensor> given = defined_of(inputs);
  const std::vector<Tensor> results = Recompute::apply(anchor, kept, at::TensorList(given));
  kept->torch_draws.keep_changed();
  return spread(results, kept->outputs);
}

}  // namespace sherd::detail
