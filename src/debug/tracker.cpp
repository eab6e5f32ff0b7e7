#include "debug/tracker.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "debug/recorded_inputs.h"
#include "tensor/cause_of.h"

namespace sherd::detail {
namespace {

thread_local std::shared_ptr<Tracker> this_threads_tracker;

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

std::vector<at::Tensor> tensors_of(const OpInfo& info, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> tensors;
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    const c10::IValue& value = stack[base + i];
    if (argument.out) continue;
    if (argument.kind == ArgumentKind::tensor) {
      tensors.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    } else if (argument.kind == ArgumentKind::tensor_list && value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        tensors.push_back(element.isTensor() ? element.toTensor() : at::Tensor());
      }
    }
  }
  return tensors;
}

}  // namespace

// Where the frames were before an operator.
struct Tracker::Depth final : at::ObserverContext {
  explicit Depth(size_t n) : frames(n) {}
  size_t frames;
};

// The observer of a thread in the background.
struct BackgroundWatch final : CommObserver {
  BackgroundWatch(std::shared_ptr<Tracker> t, Tracker::Reason r) : tracker(std::move(t)), why(std::move(r)) {}
  size_t begin(ObservedCall call) override { return tracker->begin(std::move(call), why, /*background=*/true); }
  void end(size_t call) override { tracker->end(call); }
  void enter(const Cause&) override {}
  void leave() override {}
  std::shared_ptr<CommObserver> in_background() override { return shared_from_this(); }
  std::shared_ptr<Tracker> tracker;
  Tracker::Reason why;
};

void Tracker::start(std::shared_ptr<DebugLog> log, const NamedTensors& names) {
  if (!this_threads_tracker) {
    this_threads_tracker = std::make_shared<Tracker>();
    this_threads_tracker->install();
  }
  Tracker& tracker = *this_threads_tracker;
  for (const auto& [name, tensor] : names) {
    const c10::StorageImpl* memory = memory_of(tensor);
    if (memory == nullptr) continue;
    const DTensorMeta* meta = meta_of(tensor);
    const at::Tensor& local = meta != nullptr ? meta->local : tensor;
    tracker.parameters_.insert_or_assign(
        memory, Parameter{name, local.storage().getWeakStorageImpl(), meta != nullptr ? meta->spec : SpecPtr()});
  }
  const std::lock_guard lock(tracker.mutex_);
  tracker.logs_.push_back(std::move(log));
}

void Tracker::stop(const std::shared_ptr<DebugLog>& log) {
  log->end();
  if (!this_threads_tracker) return;  // another thread lets go of it: it hears nothing more
  bool last = false;
  {
    const std::lock_guard lock(this_threads_tracker->mutex_);
    std::erase(this_threads_tracker->logs_, log);
    last = this_threads_tracker->logs_.empty();
  }
  if (!last) return;
  this_threads_tracker->uninstall();
  this_threads_tracker.reset();
}

void Tracker::install() {
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Tracker::operator_begins, &Tracker::operator_ends)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  observer_before_ = set_comm_observer(this);
  set_move_listener(this);
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  multithreaded_before_ = state.get_multithreading_enabled();
  state.set_multithreading_enabled(false);
}

void Tracker::uninstall() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(multithreaded_before_);
  set_move_listener(nullptr);
  set_comm_observer(observer_before_);
  at::removeCallback(callback_);
}

const Tracker::Parameter* Tracker::find(const c10::StorageImpl* memory) const {
  const auto found = parameters_.find(memory);
  return found != parameters_.end() ? &found->second : nullptr;
}

void Tracker::add_parameters(const at::Tensor& tensor, std::vector<std::string>& names) const {
  if (!tensor.defined()) return;
  const Parameter* parameter = find(memory_of(tensor));
  if (parameter == nullptr || std::find(names.begin(), names.end(), parameter->name) != names.end()) return;
  names.push_back(parameter->name);
}

void Tracker::push(Frame frame, int64_t sequence) {
  frame.backward = frame.backward || in_backward();
  if (frame.kind == Frame::Kind::node) {
    if (const auto found = by_sequence_.find(sequence); found != by_sequence_.end()) {
      frame.parameters = found->second.parameters;
      frame.scope = found->second.scope;
    }
  } else if (!frame.backward) {
    frame.scope = current_scope();
    // The last operator before a node is made is the one that makes it.
    Context context{frame.parameters, frame.scope};
    for (auto outer = frames_.rbegin(); outer != frames_.rend() && context.parameters.empty(); ++outer) {
      context.parameters = outer->parameters;
    }
    if (context.parameters.empty() && context.scope.empty()) {
      by_sequence_.erase(sequence);
    } else if (sequence >= 0) {
      by_sequence_.insert_or_assign(sequence, std::move(context));
    }
  }
  frame.start_ns = steady_ns();
  frames_.push_back(std::move(frame));
}

void Tracker::pop(size_t depth) {
  while (frames_.size() > depth) {
    const Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.kind == Frame::Kind::cause) continue;
    const int64_t now = steady_ns();
    const std::lock_guard lock(mutex_);
    for (const auto& log : logs_) {
      if (!log->options.operators || frame.start_ns < log->start_ns) continue;
      log->add(OperatorRecord{frame.name, module_of(frame.parameters), frame.scope,
                              frame.backward ? CommPass::backward : CommPass::forward, frame.start_ns - log->start_ns,
                              now - frame.start_ns});
    }
  }
}

std::unique_ptr<at::ObserverContext> Tracker::operator_begins(const at::RecordFunction& fn) {
  Tracker* tracker = this_threads_tracker.get();
  if (tracker == nullptr) return nullptr;
  auto depth = std::make_unique<Depth>(tracker->frames_.size());
  const bool node = fn.scope() == at::RecordScope::BACKWARD_FUNCTION;
  Frame frame{.kind = node ? Frame::Kind::node : Frame::Kind::op, .name = fn.name()};
  if (!node && !tracker->parameters_.empty()) {
    for (const c10::IValue& value : recorded_inputs(fn)) {
      if (value.isTensor()) {
        tracker->add_parameters(value.toTensor(), frame.parameters);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) tracker->add_parameters(tensor, frame.parameters);
      }
    }
  }
  tracker->push(std::move(frame), fn.seqNr());
  return depth;
}

void Tracker::operator_ends(const at::RecordFunction&, at::ObserverContext* context) {
  Tracker* tracker = this_threads_tracker.get();
  if (tracker != nullptr && context != nullptr) tracker->pop(static_cast<Depth*>(context)->frames);
}

void Tracker::enter(const Cause& cause) {
  Frame frame{.kind = Frame::Kind::cause, .name = cause.what, .backward = cause.backward};
  if (!cause.who.empty()) frame.parameters.push_back(cause.who);
  for (const c10::StorageImpl* memory : cause.of) {
    if (const Parameter* parameter = find(memory)) frame.parameters.push_back(parameter->name);
  }
  push(std::move(frame), static_cast<int64_t>(at::sequence_number::peek()));
}

void Tracker::leave() {
  if (!frames_.empty()) pop(frames_.size() - 1);
}

Tracker::Reason Tracker::reason() const {
  Reason why;
  why.backward = in_backward();
  why.scope = current_scope();
  if (frames_.empty()) return why;
  size_t at = frames_.size() - 1;
  while (at > 0 && frames_[at].kind == Frame::Kind::cause && frames_[at - 1].kind == Frame::Kind::cause) --at;
  const Frame& frame = frames_[at];
  why.operation = frame.name;
  why.operand = frame.operand;
  why.call = frame.call;
  for (size_t i = frames_.size(); i-- > 0;) {
    why.backward |= frames_[i].backward;
    if (why.scope.empty()) why.scope = frames_[i].scope;
  }
  for (size_t i = at + 1; i-- > 0 && why.parameters.empty();) why.parameters = frames_[i].parameters;
  if (frame.kind == Frame::Kind::op) {
    size_t first = at;
    while (first > 0 && frames_[first - 1].kind == Frame::Kind::op) --first;
    if (first != at && frames_[first].name != frame.name) why.called_by = frames_[first].name;
  }
  return why;
}

size_t Tracker::begin(ObservedCall call) { return begin(std::move(call), reason(), /*background=*/false); }

size_t Tracker::begin(ObservedCall call, Reason why, bool background) {
  CommRecord record;
  record.collective = name_of(call.kind);
  record.axis = call.axis.empty() ? call.group : call.axis;
  record.group = std::move(call.group);
  record.dtype = std::move(call.dtype);
  record.numel = call.numel;
  record.bytes = call.bytes;
  record.operation = std::move(why.operation);
  record.called_by = std::move(why.called_by);
  record.module = module_of(why.parameters);
  record.parameters = std::move(why.parameters);
  record.scope = std::move(why.scope);
  record.pass = why.backward ? CommPass::backward : CommPass::forward;
  record.background = background;
  if (why.call && why.operand >= 0) {
    const auto operand = static_cast<size_t>(why.operand);
    if (const auto& from = why.call->call.operands[operand]) {
      TensorText to = *from;
      to.placements = why.call->operands[operand].to;
      record.operand = why.operand;
      record.operand_from = to_string(*from, why.call->mesh);
      record.operand_to = to_string(to, why.call->mesh);
    }
  }
  const int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  OpenRecords open;
  for (const auto& log : logs_) {
    record.start_ns = now - log->start_ns;
    if (const auto number = log->add(record, why.call)) open.emplace_back(log, *number);
  }
  open_.emplace(next_, std::move(open));
  return next_++;
}

void Tracker::end(size_t call) {
  const int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(call);
  if (found == open_.end()) return;
  for (const auto& [log, record] : found->second) log->finish(record, now);
  open_.erase(found);
}

std::shared_ptr<CommObserver> Tracker::in_background() {
  return std::make_shared<BackgroundWatch>(std::static_pointer_cast<Tracker>(shared_from_this()), reason());
}

void Tracker::operator_moves(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan,
                             const torch::jit::Stack& stack) {
  if (frames_.empty() || frames_.back().kind != Frame::Kind::op) return;
  auto moving = std::make_shared<MovingCall>();
  moving->mesh = plan.mesh->mesh();
  moving->no_rule = plan.no_rule;
  const rules::OpCall call = info.call(op.schema(), stack);
  moving->call.op = info.name + (call.overload.empty() ? "" : "." + call.overload);
  moving->call.outputs = call.num_outputs;
  for (const rules::PlainArgument& argument : call.plain) {
    moving->call.arguments.emplace_back(argument.name, argument.value);
  }
  const std::vector<at::Tensor> tensors = tensors_of(info, stack);
  for (size_t i = 0; i < plan.inputs.size() && i < tensors.size(); ++i) {
    const InputPlan& input = plan.inputs[i];
    MovingCall::Operand operand{.to = input.to};
    if (!tensors[i].defined()) {
      moving->call.operands.emplace_back();
      moving->operands.push_back(std::move(operand));
      continue;
    }
    moving->call.operands.push_back(TensorText{dtype_name(tensors[i].scalar_type()), input.shape, input.from});
    const DTensorMeta* meta = meta_of(tensors[i]);
    operand.gathered = meta != nullptr && meta->spec->gathers != 0;
    if (const Parameter* parameter = find(memory_of(tensors[i]))) {
      const bool whole = parameter->spec && numel(parameter->spec->sizes) == tensors[i].numel();
      const bool same = whole && tensors[i].sizes() == at::IntArrayRef(parameter->spec->sizes);
      const bool square = whole && tensors[i].dim() == 2 && tensors[i].size(0) == tensors[i].size(1);
      operand.transposed = whole && tensors[i].dim() == 2 &&
                           (square ? tensors[i].strides() != at::IntArrayRef(parameter->spec->strides) : !same);
      if (same || operand.transposed) operand.parameter = parameter->name;
    }
    moving->operands.push_back(std::move(operand));
  }
  frames_.back().call = std::move(moving);
}

void Tracker::operand_moves(int64_t input) {
  if (!frames_.empty() && frames_.back().kind == Frame::Kind::op) frames_.back().operand = input;
}

std::string module_of(const std::vector<std::string>& parameters) {
  const auto owner = [](const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(0, dot);
  };
  if (parameters.empty()) return "";
  std::string common = owner(parameters.front());
  for (const std::string& name : parameters) {
    const std::string path = owner(name) + ".";
    while (!common.empty() && !path.starts_with(common + ".")) {
      const size_t dot = common.rfind('.');
      common = dot == std::string::npos ? "" : common.substr(0, dot);
    }
  }
  if (!common.empty()) return common;
  // Nothing in common: the first and the last of them.
  return owner(parameters.front()) + " ... " + owner(parameters.back());
}

}  // namespace sherd::detail
