#include "comm/recording.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <span>

#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/sync_backend.h"

namespace sherd::detail {
namespace {

// The blocks that an all_to_all call moves, as tensors of the right size and dtype; their contents do not matter.
std::vector<at::Tensor> row_blocks(const at::Tensor& whole, const std::vector<int64_t>& rows, int size) {
  std::vector<at::Tensor> blocks;
  if (rows.empty()) {
    for (int i = 0; i < size; ++i) blocks.push_back(whole.view({-1}).narrow(0, 0, whole.numel() / size));
    return blocks;
  }
  for (const int64_t n : rows) blocks.push_back(whole.narrow(0, 0, n));
  return blocks;
}

// As many bytes from each rank, one behind the other.
void gather_bytes(c10d::Backend& backend, std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto device = backend.getBackendName() == "nccl"
                          ? c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice()
                          : c10::Device(c10::DeviceType::CPU);
  const auto length = static_cast<int64_t>(mine.size());
  at::Tensor in = at::empty({length}, at::kByte);
  std::memcpy(in.mutable_data_ptr(), mine.data(), mine.size());
  in = in.to(device);
  at::Tensor out = at::empty({static_cast<int64_t>(all.size())}, in.options());
  backend._allgather_base(out, in, {})->wait();
  out = out.cpu();
  std::memcpy(all.data(), out.const_data_ptr(), all.size());
}

}  // namespace

void compare_calls(c10d::Backend& backend, const std::vector<int64_t>& ranks, const Call& call) {
  const int size = backend.getSize();
  const CallSums sums = sums_of(call, backend.getRank(), size);
  std::vector<CallSums> all_sums(static_cast<size_t>(size));
  gather_bytes(backend, std::as_bytes(std::span(&sums, 1)), std::as_writable_bytes(std::span(all_sums)));
  if (fit_together(all_sums)) return;
  // All ranks know it now, and tell each other what they call.
  const std::string mine = encode(shape_of(call, size));
  std::string all(mine.size() * static_cast<size_t>(size), '\0');
  gather_bytes(backend, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<CallShape> shapes;
  for (size_t at = 0; at < all.size(); at += mine.size()) shapes.push_back(decode(all.substr(at, mine.size()), size));
  ErrorText text(name_of(call.kind), kDifferentCalls);
  for (const auto& [who, what] : calls_by_rank(ranks, shapes)) text.fact(who, what);
  throw_comm_error(text.help(kDifferentCallsHelp));
}

RecordingBackend::RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::vector<int64_t> ranks,
                                   std::shared_ptr<CallLog> log, bool check)
    : c10d::Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      ranks_(std::move(ranks)),
      log_(std::move(log)),
      check_(check) {}

void RecordingBackend::note(const Call& call) {
  if (log_) log_->push_back(describe(call));
  if (check_ && all_ranks_call(call.kind)) compare_calls(*inner_, ranks_, call);
}

RecordingBackend::WorkPtr RecordingBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  note({.kind = Collective::broadcast,
        .inputs = tensors,
        .outputs = tensors,
        .root = static_cast<int>(options.rootRank)});
  return inner_->broadcast(tensors, options);
}

RecordingBackend::WorkPtr RecordingBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  note({.kind = Collective::all_reduce, .inputs = tensors, .outputs = tensors, .op = from_c10d(options.reduceOp)});
  return inner_->allreduce(tensors, options);
}

RecordingBackend::WorkPtr RecordingBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  note({.kind = Collective::reduce,
        .inputs = tensors,
        .outputs = tensors,
        .op = from_c10d(options.reduceOp),
        .root = static_cast<int>(options.rootRank)});
  return inner_->reduce(tensors, options);
}

RecordingBackend::WorkPtr RecordingBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  note({.kind = Collective::all_gather, .inputs = inputs, .outputs = outputs.at(0)});
  return inner_->allgather(outputs, inputs, options);
}

RecordingBackend::WorkPtr RecordingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& options) {
  note({.kind = Collective::all_gather, .inputs = {input}, .outputs = row_blocks(output, {}, getSize())});
  return inner_->_allgather_base(output, input, options);
}

RecordingBackend::WorkPtr RecordingBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  note({.kind = Collective::gather,
        .inputs = inputs,
        .outputs = outputs.empty() ? Tensors{} : outputs.at(0),
        .root = static_cast<int>(options.rootRank)});
  return inner_->gather(outputs, inputs, options);
}

RecordingBackend::WorkPtr RecordingBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                    const c10d::ScatterOptions& options) {
  note({.kind = Collective::scatter,
        .inputs = inputs.empty() ? Tensors{} : inputs.at(0),
        .outputs = outputs,
        .root = static_cast<int>(options.rootRank)});
  return inner_->scatter(outputs, inputs, options);
}

RecordingBackend::WorkPtr RecordingBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
  note({.kind = Collective::reduce_scatter,
        .inputs = inputs.at(0),
        .outputs = outputs,
        .op = from_c10d(options.reduceOp)});
  return inner_->reduce_scatter(outputs, inputs, options);
}

RecordingBackend::WorkPtr RecordingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  note({.kind = Collective::reduce_scatter,
        .inputs = row_blocks(input, {}, getSize()),
        .outputs = {output},
        .op = from_c10d(options.reduceOp)});
  return inner_->_reduce_scatter_base(output, input, options);
}

RecordingBackend::WorkPtr RecordingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_rows,
                                                          std::vector<int64_t>& input_rows,
                                                          const c10d::AllToAllOptions& options) {
  note({.kind = Collective::all_to_all,
        .inputs = row_blocks(input, input_rows, getSize()),
        .outputs = row_blocks(output, output_rows, getSize())});
  return inner_->alltoall_base(output, input, output_rows, input_rows, options);
}

RecordingBackend::WorkPtr RecordingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& options) {
  note({.kind = Collective::all_to_all, .inputs = inputs, .outputs = outputs});
  return inner_->alltoall(outputs, inputs, options);
}

RecordingBackend::WorkPtr RecordingBackend::send(Tensors& tensors, int to, int tag) {
  note({.kind = Collective::send, .inputs = tensors});
  return inner_->send(tensors, to, tag);
}

RecordingBackend::WorkPtr RecordingBackend::recv(Tensors& tensors, int from, int tag) {
  note({.kind = Collective::receive, .outputs = tensors});
  return inner_->recv(tensors, from, tag);
}

RecordingBackend::WorkPtr RecordingBackend::barrier(const c10d::BarrierOptions& options) {
  note({.kind = Collective::barrier});
  return inner_->barrier(options);
}

}  // namespace sherd::detail
