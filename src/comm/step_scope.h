#pragma once
// Which step of a plan a thread's collectives carry out, for those who keep calls (CommRecorder).

#include <c10/util/FunctionRef.h>

#include <string>

namespace sherd::detail {

/// While it lives, calls that this thread's recorder keeps say that they are of this step. The text is made only where
/// there is a recorder.
class StepScope {
 public:
  using Text = c10::function_ref<std::string()>;
  explicit StepScope(const Text& text);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  const Text text_;
  const Text* const outer_;
};

}  // namespace sherd::detail
