#include "comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/group_state.h"
#include "comm/step_scope.h"
#include "layout/bytes_text.h"
#include "sherd/collectives.h"

namespace sherd {
namespace {

thread_local CommRecorder* this_threads_recorder = nullptr;
thread_local const detail::StepScope::Text* this_threads_step = nullptr;

}  // namespace

detail::Recorded detail::record(const Group& group, Collective kind, const at::Tensor& in, int64_t received) {
  Recorded recorded;
  if (in.defined()) recorded.bytes = received * static_cast<int64_t>(in.element_size());
  CommObserver* observer = comm_observer();
  if (this_threads_recorder == nullptr && observer == nullptr) return recorded;
  CollectiveCall call{.name = name_of(kind), .group = group.name(), .dtype = {}, .bytes = recorded.bytes};
  if (in.defined()) {
    call.dtype = dtype_name(in.scalar_type());
    call.numel = in.numel();
  }
  if (observer != nullptr) {
    recorded.span = std::make_shared<CommSpan>(
        observer->shared_from_this(),
        ObservedCall{kind, call.group, group.state().axis_label(), call.dtype, call.numel, call.bytes});
  }
  if (this_threads_recorder != nullptr) {
    if (this_threads_step != nullptr) call.step = (*this_threads_step)();
    this_threads_recorder->add(std::move(call));
  }
  return recorded;
}

void detail::record(CollectiveCall call) {
  if (this_threads_recorder != nullptr) this_threads_recorder->add(std::move(call));
}

detail::StepScope::StepScope(const Text& text) : text_(text), outer_(std::exchange(this_threads_step, &text_)) {}
detail::StepScope::~StepScope() { this_threads_step = outer_; }

CommRecorder::CommRecorder() : outer_(std::exchange(this_threads_recorder, this)) {}
CommRecorder::~CommRecorder() { this_threads_recorder = outer_; }

int64_t CommRecorder::bytes() const {
  int64_t total = 0;
  for (const CollectiveCall& call : calls_) total += call.bytes;
  return total;
}

std::string CommRecorder::to_string() const {
  struct Line {
    std::string what;
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::vector<Line> lines;
  for (const CollectiveCall& call : calls_) {
    const bool planned = !call.step.empty();
    const std::string what = fmt::format("{}{}{}{}", planned ? call.step : call.name, call.dtype.empty() ? "" : " ",
                                         call.dtype, planned ? "" : " on " + call.group);
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.what == what; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{what});
    ++line->count;
    line->bytes += call.bytes;
  }
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("{} x{} {}\n", line.what, line.count, detail::bytes_text(static_cast<double>(line.bytes)));
  return text;
}

}  // namespace sherd
