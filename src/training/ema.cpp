#include "sherd/ema.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>

#include "comm/errors.h"

namespace sherd {

using at::Tensor;

ExponentialMovingAverage::ExponentialMovingAverage(std::vector<Tensor> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  if (!(decay >= 0 && decay <= 1)) {
    detail::throw_value_error(ErrorText("ExponentialMovingAverage", "the decay is outside [0, 1]")
                                  .fact("decay", fmt::format("{}", decay))
                                  .help("sherd::ExponentialMovingAverage(model->parameters(), 0.999)"));
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].defined()) {
      detail::throw_value_error(ErrorText("ExponentialMovingAverage", "a parameter is undefined")
                                    .fact("parameter", std::to_string(i))
                                    .help("average what module->parameters() returns"));
    }
    averages_.push_back(parameters_[i].detach().clone());
  }
}

void ExponentialMovingAverage::update() {
  if (is_applied_) {
    detail::throw_state_error(
        ErrorText("ExponentialMovingAverage::update", "the averages are applied to the parameters")
            .help("end the scope that applied() returned before the next step"));
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (averages_[i].is_floating_point() || averages_[i].is_complex()) {
      averages_[i].lerp_(parameters_[i], 1 - decay_);
    } else {
      averages_[i].copy_(parameters_[i]);  // a count has no average
    }
  }
  ++updates_;
}

void ExponentialMovingAverage::swap() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor aside = parameters_[i].detach().clone();
    parameters_[i].copy_(averages_[i]);
    averages_[i].copy_(aside);
  }
  is_applied_ = !is_applied_;
}

ExponentialMovingAverage::Applied::Applied(ExponentialMovingAverage& averages) : averages_(&averages) {
  if (averages.is_applied_) {
    detail::throw_state_error(ErrorText("ExponentialMovingAverage::applied", "the averages are applied already")
                                  .help("keep one scope: auto scope = average.applied();"));
  }
  averages.swap();
}

ExponentialMovingAverage::Applied::Applied(Applied&& other) noexcept
    : averages_(std::exchange(other.averages_, nullptr)) {}

ExponentialMovingAverage::Applied::~Applied() {
  if (averages_ != nullptr) averages_->swap();
}

}  // namespace sherd
