#include "comm/sync_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/errors.h"
#include "comm/reduce.h"
#include "sherd/box.h"

namespace sherd::detail {
namespace {

class FinishedWork : public c10d::Work {
 public:
  FinishedWork(int rank, std::vector<at::Tensor> result) : c10d::Work(rank), result_(std::move(result)) { finish(); }
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(result_));
    return future;
  }

 private:
  std::vector<at::Tensor> result_;
};

class ReceiveWork : public c10d::Work {
 public:
  ReceiveWork(int rank, int from, at::Tensor tensor, std::function<void()> receive)
      : c10d::Work(rank), from_(from), tensor_(std::move(tensor)), receive_(std::move(receive)) {}
  int sourceRank() const override { return from_; }
  std::vector<at::Tensor> result() override { return {tensor_}; }
  bool wait(std::chrono::milliseconds) override {
    if (auto receive = std::exchange(receive_, nullptr)) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      try {
        receive();
      } catch (...) {
        finishAndThrow(std::current_exception());
      }
      finish();
    }
    return true;
  }

 private:
  int from_;
  at::Tensor tensor_;
  std::function<void()> receive_;
};

at::Tensor only(const char* operation, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    throw_value_error(ErrorText(operation, "takes one tensor per call")
                          .fact("given", std::to_string(tensors.size()))
                          .help("call it once for each tensor"));
  }
  return tensors.front();
}

// The blocks of a tensor that holds one per rank, equal or `rows` each (rows of dim 0).
std::vector<at::Tensor> blocks_of(const char* operation, const at::Tensor& whole, int size,
                                  const std::vector<int64_t>& rows) {
  std::vector<at::Tensor> blocks;
  blocks.reserve(static_cast<size_t>(size));
  if (rows.empty()) {
    const at::Tensor flat = whole.view({-1});
    const int64_t numel = flat.numel() / size;
    if (numel * size != flat.numel()) {
      throw_value_error(ErrorText(operation, "the tensor does not divide into one equal block per rank")
                            .fact("elements", std::to_string(flat.numel()))
                            .fact("ranks", std::to_string(size))
                            .help("pass the size of each block"));
    }
    for (int i = 0; i < size; ++i) blocks.push_back(flat.narrow(0, i * numel, numel));
    return blocks;
  }
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (rows.size() != static_cast<size_t>(size) || total != whole.size(0)) {
    throw_value_error(ErrorText(operation, "the blocks do not add up to the tensor")
                          .fact("blocks", to_string(rows))
                          .fact("tensor", std::to_string(whole.size(0)) + " rows")
                          .help("give one size per rank; their sum is the size of dim 0"));
  }
  int64_t offset = 0;
  for (const int64_t n : rows) {
    blocks.push_back(whole.narrow(0, offset, n));
    offset += n;
  }
  return blocks;
}

}  // namespace

ReduceOp from_c10d(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::band;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bxor;
    default:
      break;
  }
  throw_value_error(ErrorText("reduce", "this transport does not know the reduction")
                        .fact("reduction", "number " + std::to_string(static_cast<int>(op.op_)) + " of c10d::ReduceOp")
                        .help("sum, avg, product, min, max, band, bor or bxor"));
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::avg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::band:
      return c10d::ReduceOp::BAND;
    case ReduceOp::bor:
      return c10d::ReduceOp::BOR;
    case ReduceOp::bxor:
      return c10d::ReduceOp::BXOR;
  }
  return c10d::ReduceOp::SUM;
}

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() != 0 && to.const_data_ptr() != from.const_data_ptr()) to.copy_(from.reshape(to.sizes()));
}

void check_fits(const at::Tensor& message, const at::Tensor& tensor) {
  if (message.numel() == tensor.numel() && message.scalar_type() == tensor.scalar_type()) return;
  throw_comm_error(ErrorText("receive", "the tensor sent does not fit the tensor given")
                       .fact("sent", dtype_name(message.scalar_type()) + to_string(message.sizes().vec()))
                       .fact("given", dtype_name(tensor.scalar_type()) + to_string(tensor.sizes().vec()))
                       .help("receive into a tensor of the sender's dtype and size"));
}

void check_on_cpu(const Call& call) {
  for (const auto* tensors : {&call.inputs, &call.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.device().is_cpu()) continue;
      throw_value_error(ErrorText(name_of(call.kind), "shared memory is for tensors on the CPU")
                            .fact("device", tensor.device().str())
                            .help("tensor.cpu(), or a group with a backend for the device: \"cpu:shm,cuda:nccl\""));
    }
  }
}

void with_contiguous(const Call& call, const std::function<void(const Call&)>& f) {
  const auto is = [](const at::Tensor& tensor) { return tensor.is_contiguous(); };
  if (std::all_of(call.inputs.begin(), call.inputs.end(), is) &&
      std::all_of(call.outputs.begin(), call.outputs.end(), is)) {
    return f(call);
  }
  Call dense = call;
  for (at::Tensor& tensor : dense.inputs) tensor = tensor.contiguous();
  for (at::Tensor& tensor : dense.outputs) tensor = tensor.contiguous();
  // What is reduced or broadcast is input and output in one. In lists one block may be both, and the others not.
  const bool in_place =
      call.kind == Collective::all_reduce || call.kind == Collective::reduce || call.kind == Collective::broadcast;
  if (in_place) dense.inputs = dense.outputs;
  f(dense);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].is_same(dense.outputs[i])) call.outputs[i].copy_(dense.outputs[i]);
  }
}

bool reduced_in_32_bits(c10::ScalarType dtype, ReduceOp op) {
  return (dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16) &&
         (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::product);
}

void reduce_into(const at::Tensor& out, const std::vector<at::Tensor>& parts, ReduceOp op) {
  const bool widen = reduced_in_32_bits(out.scalar_type(), op);
  const auto plain = [](const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); };
  const ReduceLoop loop = reduce_loop(out.scalar_type(), op);
  if (loop != nullptr && plain(out) && std::all_of(parts.begin(), parts.end(), plain)) {
    std::vector<const void*> data;
    for (const at::Tensor& part : parts) data.push_back(part.const_data_ptr());
    return loop(out.mutable_data_ptr(), data.data(), data.size(), static_cast<size_t>(out.numel()));
  }
  at::Tensor sum = widen ? parts.front().to(c10::ScalarType::Float) : parts.front().clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor& part = parts[i];
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        sum.add_(part);
        break;
      case ReduceOp::product:
        sum.mul_(part);
        break;
      case ReduceOp::min:
        at::minimum_out(sum, sum, part);
        break;
      case ReduceOp::max:
        at::maximum_out(sum, sum, part);
        break;
      case ReduceOp::band:
        sum.bitwise_and_(part);
        break;
      case ReduceOp::bor:
        sum.bitwise_or_(part);
        break;
      case ReduceOp::bxor:
        sum.bitwise_xor_(part);
        break;
    }
  }
  if (op == ReduceOp::avg) sum.div_(static_cast<int64_t>(parts.size()));
  out.copy_(sum);
}

SyncBackend::WorkPtr SyncBackend::finish(const Call& call) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  run(call);
  return c10::make_intrusive<FinishedWork>(getRank(), call.outputs);
}

void SyncBackend::guarded(const Call& call, const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const std::exception& error) {  // no memory, say
    stop_others(message_of(error));
    throw_comm_error(ErrorText(name_of(call.kind), "this rank cannot go on")
                         .fact("call", describe(call))
                         .fact("cause", message_of(error))
                         .help("mend the cause; the other ranks stopped because of it"));
  }
}

SyncBackend::WorkPtr SyncBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only("broadcast", tensors);
  return finish({.kind = Collective::broadcast,
                 .inputs = {tensor},
                 .outputs = {tensor},
                 .root = static_cast<int>(options.rootRank)});
}

SyncBackend::WorkPtr SyncBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only("all_reduce", tensors);
  return finish(
      {.kind = Collective::all_reduce, .inputs = {tensor}, .outputs = {tensor}, .op = from_c10d(options.reduceOp)});
}

SyncBackend::WorkPtr SyncBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only("reduce", tensors);
  return finish({.kind = Collective::reduce,
                 .inputs = {tensor},
                 .outputs = {tensor},
                 .op = from_c10d(options.reduceOp),
                 .root = static_cast<int>(options.rootRank)});
}

SyncBackend::WorkPtr SyncBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions&) {
  return finish({.kind = Collective::all_gather, .inputs = {only("all_gather", inputs)}, .outputs = outputs.at(0)});
}

SyncBackend::WorkPtr SyncBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions&) {
  return finish(
      {.kind = Collective::all_gather, .inputs = {input}, .outputs = blocks_of("all_gather", output, getSize(), {})});
}

SyncBackend::WorkPtr SyncBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  const bool root = options.rootRank == getRank();
  return finish({.kind = Collective::gather,
                 .inputs = {only("gather", inputs)},
                 .outputs = root ? outputs.at(0) : Tensors{},
                 .root = static_cast<int>(options.rootRank)});
}

SyncBackend::WorkPtr SyncBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ScatterOptions& options) {
  const bool root = options.rootRank == getRank();
  return finish({.kind = Collective::scatter,
                 .inputs = root ? inputs.at(0) : Tensors{},
                 .outputs = {only("scatter", outputs)},
                 .root = static_cast<int>(options.rootRank)});
}

SyncBackend::WorkPtr SyncBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  return finish({.kind = Collective::reduce_scatter,
                 .inputs = inputs.at(0),
                 .outputs = {only("reduce_scatter", outputs)},
                 .op = from_c10d(options.reduceOp)});
}

SyncBackend::WorkPtr SyncBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  return finish({.kind = Collective::reduce_scatter,
                 .inputs = blocks_of("reduce_scatter", input, getSize(), {}),
                 .outputs = {output},
                 .op = from_c10d(options.reduceOp)});
}

SyncBackend::WorkPtr SyncBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_rows, std::vector<int64_t>& input_rows,
                                                const c10d::AllToAllOptions&) {
  return finish({.kind = Collective::all_to_all,
                 .inputs = blocks_of("all_to_all", input, getSize(), input_rows),
                 .outputs = blocks_of("all_to_all", output, getSize(), output_rows)});
}

SyncBackend::WorkPtr SyncBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  return finish({.kind = Collective::all_to_all, .inputs = inputs, .outputs = outputs});
}

SyncBackend::WorkPtr SyncBackend::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& options) {
  for (const at::Tensor& tensor : tensors) {
    std::vector<at::Tensor> one{tensor};
    allreduce(one, options);
  }
  return c10::make_intrusive<FinishedWork>(getRank(), tensors);
}

SyncBackend::WorkPtr SyncBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::AllgatherOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i) _allgather_base(outputs.at(i), inputs[i], options);
  return c10::make_intrusive<FinishedWork>(getRank(), outputs);
}

SyncBackend::WorkPtr SyncBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::ReduceScatterOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i) _reduce_scatter_base(outputs.at(i), inputs[i], options);
  return c10::make_intrusive<FinishedWork>(getRank(), outputs);
}

SyncBackend::WorkPtr SyncBackend::send(Tensors& tensors, int to, int tag) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  run_send(only("send", tensors), to, tag);
  return c10::make_intrusive<FinishedWork>(getRank(), Tensors{});
}

SyncBackend::WorkPtr SyncBackend::recv(Tensors& tensors, int from, int tag) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor tensor = only("receive", tensors);
  return c10::make_intrusive<ReceiveWork>(getRank(), from, tensor, start_receive(tensor, from, tag));
}

SyncBackend::WorkPtr SyncBackend::barrier(const c10d::BarrierOptions&) { return finish({.kind = Collective::barrier}); }

}  // namespace sherd::detail
