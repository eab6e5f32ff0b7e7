#pragma once
// Losses of logits whose classes lie on different ranks.
//
// cross_entropy, nll_loss, log_softmax and softmax never gather them: ranks agree on a maximum and a sum per sample,
// each picks the targets among its own classes, and the gradient comes out cut as the logits are. This is so wherever
// they are called, for any number of mesh axes, with label smoothing, class weights, ignore_index and probabilities as
// targets. There is nothing to turn on.

namespace sherd {

/// While it lives, a loss in this thread that would gather the classes of its logits all the same throws
/// c10::ValueError, on every rank and before data moves: a margin loss, say, which must see all classes of a sample. It
/// says what to call instead. Scopes nest.
class LossParallel {
 public:
  LossParallel();
  ~LossParallel();
  LossParallel(const LossParallel&) = delete;
  LossParallel& operator=(const LossParallel&) = delete;

 private:
  bool outer_;
};

}  // namespace sherd
