#include "sherd/pipeline.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "comm/answers.h"
#include "comm/errors.h"
#include "parallel/activation.h"
#include "parallel/axis_of.h"
#include "parallel/channel.h"
#include "parallel/microbatches.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::ActivationForm;
using detail::Channel;
using Kind = PipelineAction::Kind;

constexpr const char* kOperation = "Pipeline";

const char* name_of(Schedule schedule) { return schedule == Schedule::GPipe ? "GPipe" : "OneFOneB"; }

// A place in the group that is there, also where nothing is sent: the first stage has none before it.
int neighbour(const Group& group, int step) { return (group.rank() + step + group.size()) % group.size(); }

void check_options(const DeviceMesh& axis, const PipelineOptions& options) {
  if (options.microbatches < 1) {
    detail::throw_value_error(ErrorText(kOperation, "there must be a microbatch")
                                  .fact("microbatches", std::to_string(options.microbatches))
                                  .help("PipelineOptions{.microbatches = 8}"));
  }
  const std::string mine = fmt::format("{}, {} microbatches", name_of(options.schedule), options.microbatches);
  const std::vector<std::string> all = detail::answers_of_all(axis.group(0), kOperation, [&] { return mine; });
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    const auto rank = [&](size_t place) { return "rank " + std::to_string(axis.group(0).ranks()[place]); };
    detail::throw_value_error(ErrorText(kOperation, "the ranks have different options")
                                  .fact(rank(0), all[0])
                                  .fact(rank(i), all[i])
                                  .help("the same PipelineOptions on every rank"));
  }
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(Stage stage, const DeviceMesh& axis, const PipelineOptions& options)
      : stage_(std::move(stage)),
        axis_(axis),
        group_(axis.group(0)),
        options_(options),
        onward_(group_, "pipeline", axis.device(), neighbour(group_, 1), neighbour(group_, -1)),
        back_(group_, "pipeline gradients", axis.device(), neighbour(group_, -1), neighbour(group_, 1)) {}

  int64_t stage() const { return group_.rank(); }
  int64_t stages() const { return group_.size(); }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

  Tensor step(const Tensor& input, const Tensor& target, const Loss& loss) {
    Batch batch;
    batch.loss = &loss;
    begin(batch, input, [&] {
      if (is_last()) batch.targets = detail::cut_batch("target", target, options_.microbatches);
    });
    return or_fail_all([&] {
      const c10::AutoGradMode with_grad(true);
      for (const auto& action : schedule_actions(options_.schedule, stages(), stage(), options_.microbatches)) {
        if (action.kind == Kind::forward) {
          forward(batch, action.microbatch);
        } else {
          backward(batch, action.microbatch);
        }
      }
      onward_.finish();
      back_.finish();
      return mean_loss(batch);
    });
  }

  Tensor infer(const Tensor& input) {
    Batch batch;
    begin(batch, input, [] {});
    return or_fail_all([&] {
      const c10::AutoGradMode without_grad(false);
      for (int64_t m = 0; m < options_.microbatches; ++m) forward(batch, m);
      onward_.finish();
      return is_last() ? detail::join_batch(batch.outputs) : Tensor();
    });
  }

 private:
  // Of one microbatch between its forward and its backward.
  struct Alive {
    Tensor input;
    Tensor output;  // on the last stage its share of the mean loss
  };
  struct Batch {
    const Loss* loss = nullptr;   // none: inference
    std::vector<Tensor> inputs;   // of the first stage
    std::vector<Tensor> targets;  // of the last
    std::vector<Tensor> outputs;  // of the last, in inference
    std::map<int64_t, Alive> alive;
    Tensor loss_sum;
  };

  // What can be wrong with a batch is found before anything moves, and told to all.
  void begin(Batch& batch, const Tensor& input, const std::function<void()>& check_target) {
    const std::vector<std::string> answers = detail::answers_of_all(group_, kOperation, [&]() -> std::string {
      check_target();
      if (!is_first()) return {};
      batch.inputs = detail::cut_batch("input", input, options_.microbatches);
      return fmt::format("{} {}", batch.loss != nullptr ? "step" : "forward", to_string(batch.inputs.front()));
    });
    // The first stage says what came; where it is something else than before, the stages tell each other what they make
    // of it.
    if (answers.front() == forms_are_for_) return;
    forms_are_for_ = answers.front();
    incoming_.reset();
    outgoing_.reset();
  }

  template <class F>
  Tensor or_fail_all(const F& run) {
    try {
      return run();
    } catch (const c10::DistBackendError&) {
      forms_are_for_.clear();
      throw;  // another rank's failure: all know of it
    } catch (...) {
      forms_are_for_.clear();
      axis_.world().fail(detail::message_of_current_exception());
      throw;
    }
  }

  Tensor take_input() {
    if (!incoming_) incoming_ = detail::parse_form(onward_.take_text());
    const Tensor part = detail::place_for(*incoming_, axis_);
    onward_.take(part);
    Tensor input = detail::activation_of(part, *incoming_, axis_);
    if (incoming_->needs_grad) input.requires_grad_(true);
    return input;
  }

  void give_output(const Tensor& output) {
    const ActivationForm form = detail::form_of(output, axis_);
    if (!outgoing_) {
      onward_.give_text(detail::to_text(form));
      outgoing_ = form;
    } else if (*outgoing_ != form) {
      detail::throw_value_error(ErrorText(kOperation, "a stage must make the same of every microbatch")
                                    .fact("stage", std::to_string(stage()))
                                    .fact("before", detail::describe(*outgoing_))
                                    .fact("now", detail::describe(form))
                                    .help("outputs of one shape, dtype and placement for inputs of one shape"));
    }
    onward_.give(detail::part_to_send(output));
  }

  void forward(Batch& batch, int64_t microbatch) {
    const auto m = static_cast<size_t>(microbatch);
    const Tensor input = is_first() ? std::exchange(batch.inputs[m], Tensor()) : take_input();
    Tensor output = stage_(input);
    if (!is_last()) {
      output = detail::sendable(output);
      give_output(output);
    } else if (batch.loss == nullptr) {
      batch.outputs.push_back(output);
    } else {
      output = (*batch.loss)(output, std::exchange(batch.targets[m], Tensor()));
      if (output.numel() != 1) {
        detail::throw_value_error(ErrorText(kOperation, "the loss must be one number")
                                      .fact("loss", to_string(output))
                                      .help("the mean over the microbatch: loss.mean()"));
      }
      const Tensor value = output.detach();
      const Tensor plain = (is_dtensor(value) ? full_tensor(value) : value).reshape({1}).to(at::kDouble);
      batch.loss_sum = batch.loss_sum.defined() ? batch.loss_sum + plain : plain;
      output = output / options_.microbatches;
    }
    if (batch.loss != nullptr) batch.alive[microbatch] = {input, output};
  }

  void backward(Batch& batch, int64_t microbatch) {
    const Alive alive = std::move(batch.alive.extract(microbatch).mapped());
    if (is_last()) {
      alive.output.reshape({}).backward();
    } else if (outgoing_->needs_grad) {
      const Tensor part = detail::place_for(*outgoing_, axis_);
      back_.take(part);
      alive.output.backward(detail::activation_of(part, *outgoing_, axis_));
    }
    if (is_first() || !incoming_->needs_grad) return;
    const Tensor grad = alive.input.grad();
    // A stage that made nothing of its input has no gradient for it.
    back_.give(grad.defined() ? detail::part_to_send(grad) : detail::place_for(*incoming_, axis_).zero_());
  }

  Tensor mean_loss(const Batch& batch) {
    const Tensor mean = is_last() ? batch.loss_sum / options_.microbatches
                                  : at::zeros({1}, at::TensorOptions(at::kDouble).device(axis_.device()));
    broadcast(group_, mean, static_cast<int>(stages()) - 1).wait();
    return mean.squeeze(0);
  }

  Stage stage_;
  DeviceMesh axis_;
  Group group_;
  PipelineOptions options_;
  Channel onward_, back_;
  std::string forms_are_for_;
  std::optional<ActivationForm> incoming_, outgoing_;
};

Pipeline::Pipeline(Stage stage, const DeviceMesh& axis, const PipelineOptions& options) {
  detail::require_one_axis(kOperation, axis);
  check_options(axis, options);
  impl_ = std::make_unique<Impl>(std::move(stage), axis, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Tensor Pipeline::step(const Tensor& input, const Tensor& target, const Loss& loss) {
  return impl_->step(input, target, loss);
}
Tensor Pipeline::forward(const Tensor& input) { return impl_->infer(input); }
int64_t Pipeline::stage() const { return impl_->stage(); }
int64_t Pipeline::stages() const { return impl_->stages(); }

}  // namespace sherd
