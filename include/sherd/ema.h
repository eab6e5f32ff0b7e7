#pragma once
// An exponential moving average of parameters, for evaluation and checkpoints.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sherd {

/// Keeps an average of each parameter, with its placements: a rank averages what it holds, and nothing is sent.
///
///   sherd::ExponentialMovingAverage average(model->parameters(), 0.999);
///   ... optimizer.step(); average.update();
///   { auto scope = average.applied(); evaluate(model); }
class ExponentialMovingAverage {
 public:
  /// Starts with the parameters as they are. `decay` in [0, 1] is how much of the average an update leaves. Throws
  /// c10::ValueError for another number and for an undefined parameter.
  ExponentialMovingAverage(std::vector<at::Tensor> parameters, double decay);

  /// average = decay * average + (1 - decay) * parameter. Throws c10::Error while the averages are applied.
  void update();
  int64_t updates() const { return updates_; }
  double decay() const { return decay_; }

  /// While it lives, the parameters have the values of the averages, and averages() those of the parameters. Nothing
  /// but one parameter at a time is copied aside. Outlives neither the averages nor the parameters.
  class Applied {
   public:
    explicit Applied(ExponentialMovingAverage& averages);
    ~Applied();
    Applied(Applied&& other) noexcept;
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;
    Applied& operator=(Applied&&) = delete;

   private:
    ExponentialMovingAverage* averages_;
  };
  /// Throws c10::Error where they are applied already.
  [[nodiscard]] Applied applied() { return Applied(*this); }

  /// The averages, in the order of the parameters: for sherd::save, and to be loaded into.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  /// For a run that goes on: what updates() was.
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  void swap();

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> averages_;
  double decay_;
  int64_t updates_ = 0;
  bool is_applied_ = false;
};

}  // namespace sherd
