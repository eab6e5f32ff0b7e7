#include "sherd/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <numeric>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/missing_ranks.h"
#include "comm/sync_backend.h"
#include "sherd/box.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::Collective;
using detail::name_of;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

thread_local CommRecorder* recorder = nullptr;

void record(const Group& group, Collective kind, const Tensor& in, int64_t received_numel) {
  if (recorder == nullptr) return;
  recorder->add({.name = name_of(kind),
                 .group = group.name(),
                 .dtype = detail::dtype_name(in.scalar_type()),
                 .numel = in.numel(),
                 .bytes = received_numel * static_cast<int64_t>(in.element_size())});
}

// Runs `start` on the backend for `device` and turns whatever goes wrong, now or when waiting, into sherd's error.
template <class Start>
Work start(const Group& group, Collective kind, c10::DeviceType device, Start&& start_work,
           std::function<void()> after = {}) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  WorkPtr work;
  try {
    work = start_work(group.backend(device));
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) {
    group.state().rethrow(name_of(kind));
  }
  return Work([group, kind, work = std::move(work), after = std::move(after)] {
    try {
      work->wait();
    } catch (const std::exception&) {
      group.state().rethrow(name_of(kind));
    }
    at::AutoDispatchBelowADInplaceOrView inner_below_autograd;
    if (after) after();
  });
}

void check_tensor(Collective kind, const Tensor& tensor) {
  if (tensor.is_contiguous()) return;
  detail::throw_value_error(ErrorText(name_of(kind), "the tensor is not contiguous")
                                .fact("sizes", to_string(tensor.sizes().vec()))
                                .fact("strides", to_string(tensor.strides().vec()))
                                .help("tensor.contiguous()"));
}

void check_numel(Collective kind, const char* what, int64_t given, int64_t needed) {
  if (given == needed) return;
  detail::throw_value_error(ErrorText(name_of(kind), fmt::format("{} has the wrong number of elements", what))
                                .fact("given", std::to_string(given))
                                .fact("needed", std::to_string(needed))
                                .help("one block per rank of the group, in rank order"));
}

void check_same_dtype(Collective kind, const Tensor& out, const Tensor& in) {
  if (out.scalar_type() == in.scalar_type()) return;
  detail::throw_value_error(ErrorText(name_of(kind), "input and output have different dtypes")
                                .fact("in", detail::dtype_name(in.scalar_type()))
                                .fact("out", detail::dtype_name(out.scalar_type()))
                                .help("out = torch::empty(sizes, in.options())"));
}

void check_root(Collective kind, const Group& group, int root) {
  if (root >= 0 && root < group.size()) return;
  detail::throw_value_error(ErrorText(name_of(kind), "there is no such rank in the group")
                                .fact("rank", std::to_string(root))
                                .fact("group", fmt::format("{}, places 0 to {}", group.name(), group.size() - 1))
                                .help("a place in the group, not a rank of the world"));
}

int64_t sum(c10::IntArrayRef numels) { return std::accumulate(numels.begin(), numels.end(), int64_t{0}); }

std::vector<int64_t> equal_blocks(const Group& group, int64_t numel) {
  return std::vector<int64_t>(static_cast<size_t>(group.size()), numel / group.size());
}

void check_blocks(Collective kind, const Group& group, c10::IntArrayRef numels) {
  if (static_cast<int>(numels.size()) == group.size()) return;
  detail::throw_value_error(ErrorText(name_of(kind), "one block size for each rank is needed")
                                .fact("given", to_string(numels.vec()))
                                .fact("group", fmt::format("{} ranks", group.size()))
                                .help("give a size for every rank of the group, 0 where a rank has nothing"));
}

bool takes_uneven_lists(const BackendPtr& backend) { return backend->getBackendName() != "gloo"; }

// Collectives that only move data need not know the dtype.
Tensor as_bytes(const Tensor& tensor) { return tensor.view({-1}).view(c10::ScalarType::Byte); }

std::vector<int64_t> scaled(c10::IntArrayRef numels, int64_t factor) {
  std::vector<int64_t> result(numels.begin(), numels.end());
  for (int64_t& n : result) n *= factor;
  return result;
}

std::vector<Tensor> blocks_of(const Tensor& flat, c10::IntArrayRef numels) {
  std::vector<Tensor> blocks;
  int64_t offset = 0;
  for (const int64_t n : numels) {
    blocks.push_back(flat.narrow(0, offset, n));
    offset += n;
  }
  return blocks;
}

// A tensor and reduction that every transport knows, standing for the one asked for.
struct Reducible {
  Tensor tensor;
  ReduceOp op;
  bool divide = false;  // by the number of ranks, afterwards
};

Reducible reducible(Collective kind, const Tensor& tensor, ReduceOp op) {
  const auto refuse = [&](const char* problem, const char* help) {
    detail::throw_value_error(ErrorText(name_of(kind), problem)
                                  .fact("reduction", to_string(op))
                                  .fact("dtype", detail::dtype_name(tensor.scalar_type()))
                                  .help(help));
  };
  if (tensor.scalar_type() == c10::ScalarType::Bool) {
    if (op == ReduceOp::avg || op == ReduceOp::bxor) refuse("makes no sense for bool", "tensor.to(torch::kFloat)");
    const bool any = op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bor;
    return {tensor.view(c10::ScalarType::Byte), any ? ReduceOp::max : ReduceOp::min};
  }
  if (tensor.is_complex()) {
    if (op != ReduceOp::sum && op != ReduceOp::avg) refuse("complex numbers can only be summed", "sum or avg");
    return {at::view_as_real(tensor), ReduceOp::sum, op == ReduceOp::avg};
  }
  if (op == ReduceOp::avg) {
    if (!tensor.is_floating_point()) refuse("integers have no average", "tensor.to(torch::kFloat), or sum");
    return {tensor, ReduceOp::sum, true};
  }
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (bitwise && tensor.is_floating_point()) refuse("bitwise reductions are for integers", "sum, min or max");
  return {tensor, op};
}

// Gloo has no collective for blocks of different sizes. A ring moves each block n - 1 times and copies nothing.
Work ring_all_gather(const Group& group, const Tensor& out, c10::IntArrayRef numels) {
  const int n = group.size();
  const int next = (group.rank() + 1) % n;
  const int previous = (group.rank() + n - 1) % n;
  const std::vector<Tensor> blocks = blocks_of(out, numels);
  try {
    const BackendPtr backend = group.backend(out.device().type());
    for (int step = 0; step + 1 < n; ++step) {
      std::vector<Tensor> outgoing{blocks[static_cast<size_t>((group.rank() - step + n) % n)]};
      std::vector<Tensor> incoming{blocks[static_cast<size_t>((group.rank() - step - 1 + n) % n)]};
      const WorkPtr sent = outgoing[0].numel() > 0 ? backend->send(outgoing, next, step) : nullptr;
      const WorkPtr received = incoming[0].numel() > 0 ? backend->recv(incoming, previous, step) : nullptr;
      if (received) received->wait();
      if (sent) sent->wait();
    }
  } catch (const std::exception&) {
    group.state().rethrow(name_of(Collective::all_gather));
  }
  return Work();
}

}  // namespace

Work all_gather(const Group& group, const Tensor& out, const Tensor& in) {
  constexpr auto kKind = Collective::all_gather;
  check_tensor(kKind, in);
  check_tensor(kKind, out);
  check_same_dtype(kKind, out, in);
  check_numel(kKind, "out", out.numel(), in.numel() * group.size());
  record(group, kKind, in, out.numel() - in.numel());
  if (out.numel() == 0) return Work();
  Tensor to = as_bytes(out);
  Tensor from = as_bytes(in);
  return start(group, kKind, in.device().type(),
               [&](const BackendPtr& backend) { return backend->_allgather_base(to, from, {}); });
}

Work all_gather_uneven(const Group& group, const Tensor& out, const Tensor& in, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::all_gather;
  check_blocks(kKind, group, numels);
  if (std::equal(numels.begin() + 1, numels.end(), numels.begin())) return all_gather(group, out, in);
  check_tensor(kKind, in);
  check_tensor(kKind, out);
  check_same_dtype(kKind, out, in);
  check_numel(kKind, "in", in.numel(), numels[static_cast<size_t>(group.rank())]);
  check_numel(kKind, "out", out.numel(), sum(numels));
  record(group, kKind, in, out.numel() - in.numel());
  const Tensor to = as_bytes(out);
  const std::vector<int64_t> bytes = scaled(numels, static_cast<int64_t>(in.element_size()));
  std::vector<std::vector<Tensor>> blocks{blocks_of(to, bytes)};
  std::vector<Tensor> from{as_bytes(in)};
  bool ring = false;
  try {
    ring = !takes_uneven_lists(group.backend(in.device().type()));
  } catch (const std::exception&) {
    group.state().rethrow(name_of(kKind));
  }
  if (ring) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    blocks[0][static_cast<size_t>(group.rank())].copy_(from[0]);
    return ring_all_gather(group, to, bytes);
  }
  return start(group, kKind, in.device().type(),
               [&](const BackendPtr& backend) { return backend->allgather(blocks, from, {}); });
}

Work all_reduce(const Group& group, const Tensor& inout, ReduceOp op) {
  constexpr auto kKind = Collective::all_reduce;
  check_tensor(kKind, inout);
  const Reducible what = reducible(kKind, inout, op);
  // A ring sends and receives every element twice, less this rank's share.
  record(group, kKind, inout, 2 * inout.numel() * (group.size() - 1) / group.size());
  if (inout.numel() == 0 || group.size() == 1) return Work();
  std::vector<Tensor> tensors{what.tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = detail::to_c10d(what.op);
  const auto divide = [tensor = what.tensor, n = group.size()] { tensor.div_(n); };
  return start(
      group, kKind, inout.device().type(),
      [&](const BackendPtr& backend) { return backend->allreduce(tensors, options); },
      what.divide ? std::function<void()>(divide) : nullptr);
}

Work reduce_scatter(const Group& group, const Tensor& out, const Tensor& in, ReduceOp op, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::reduce_scatter;
  check_tensor(kKind, in);
  check_tensor(kKind, out);
  check_same_dtype(kKind, out, in);
  const std::vector<int64_t> sizes = numels.empty() ? equal_blocks(group, out.numel() * group.size()) : numels.vec();
  check_blocks(kKind, group, sizes);
  check_numel(kKind, "out", out.numel(), sizes[static_cast<size_t>(group.rank())]);
  check_numel(kKind, "in", in.numel(), sum(sizes));
  const Reducible from = reducible(kKind, in, op);
  record(group, kKind, in, out.numel() * (group.size() - 1));
  if (in.numel() == 0) return Work();
  const Reducible to = reducible(kKind, out, op);
  const int64_t per_element = from.tensor.numel() / in.numel();  // 2 for the parts of a complex number
  std::function<void()> after;
  if (from.divide) after = [tensor = to.tensor, n = group.size()] { tensor.div_(n); };
  const std::vector<int64_t> counts = scaled(sizes, per_element);
  const Tensor flat_in = from.tensor.view({-1});
  const Tensor flat_out = to.tensor.view({-1});
  const auto device = in.device().type();
  bool lists = true;
  try {
    lists = takes_uneven_lists(group.backend(device));
  } catch (const std::exception&) {
    group.state().rethrow(name_of(kKind));
  }
  if (lists) {
    std::vector<Tensor> outputs{flat_out};
    std::vector<std::vector<Tensor>> inputs{blocks_of(flat_in, counts)};
    c10d::ReduceScatterOptions options;
    options.reduceOp = detail::to_c10d(from.op);
    return start(
        group, kKind, device,
        [&](const BackendPtr& backend) { return backend->reduce_scatter(outputs, inputs, options); }, after);
  }
  // Gloo: exchange the blocks and reduce them here, in rank order. As many bytes as a ring needs.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto n = static_cast<size_t>(group.size());
  Tensor parts = at::empty({flat_out.numel() * group.size()}, flat_out.options());
  Tensor given = flat_in;
  std::vector<int64_t> out_rows(n, flat_out.numel());
  std::vector<int64_t> in_rows = counts;
  return start(
      group, kKind, device,
      [&](const BackendPtr& backend) { return backend->alltoall_base(parts, given, out_rows, in_rows, {}); },
      [=, op = from.op, rows = out_rows] {
        if (flat_out.numel() > 0) detail::reduce_into(flat_out, blocks_of(parts, rows), op);
        if (after) after();
      });
}

Work all_to_all(const Group& group, const Tensor& out, const Tensor& in, c10::IntArrayRef out_numels,
                c10::IntArrayRef in_numels) {
  constexpr auto kKind = Collective::all_to_all;
  check_tensor(kKind, in);
  check_tensor(kKind, out);
  check_same_dtype(kKind, out, in);
  const std::vector<int64_t> gives = in_numels.empty() ? equal_blocks(group, in.numel()) : in_numels.vec();
  const std::vector<int64_t> takes = out_numels.empty() ? equal_blocks(group, out.numel()) : out_numels.vec();
  check_blocks(kKind, group, gives);
  check_blocks(kKind, group, takes);
  check_numel(kKind, "in", in.numel(), sum(gives));
  check_numel(kKind, "out", out.numel(), sum(takes));
  record(group, kKind, in, out.numel() - takes[static_cast<size_t>(group.rank())]);
  const auto width = static_cast<int64_t>(in.element_size());
  std::vector<int64_t> in_rows = scaled(gives, width);
  std::vector<int64_t> out_rows = scaled(takes, width);
  Tensor to = as_bytes(out);
  Tensor from = as_bytes(in);
  return start(group, kKind, in.device().type(),
               [&](const BackendPtr& backend) { return backend->alltoall_base(to, from, out_rows, in_rows, {}); });
}

Work broadcast(const Group& group, const Tensor& inout, int root) {
  constexpr auto kKind = Collective::broadcast;
  check_tensor(kKind, inout);
  check_root(kKind, group, root);
  record(group, kKind, inout, group.rank() == root ? 0 : inout.numel());
  if (inout.numel() == 0 || group.size() == 1) return Work();
  std::vector<Tensor> tensors{as_bytes(inout)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return start(group, kKind, inout.device().type(),
               [&](const BackendPtr& backend) { return backend->broadcast(tensors, options); });
}

// One all_to_all in which the root alone gives: it serves blocks of any size on every transport.
Work scatter(const Group& group, const Tensor& out, const Tensor& in, int root, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::scatter;
  check_tensor(kKind, out);
  check_root(kKind, group, root);
  const auto n = static_cast<size_t>(group.size());
  std::vector<int64_t> gives(n, 0);
  std::vector<int64_t> takes(n, 0);
  takes[static_cast<size_t>(root)] = out.numel();
  Tensor from = at::empty({0}, out.options());
  if (group.rank() == root) {
    if (!in.defined()) {
      detail::throw_value_error(ErrorText(name_of(kKind), "the root has nothing to scatter")
                                    .fact("root", std::to_string(root))
                                    .help("pass the whole tensor on the root"));
    }
    check_tensor(kKind, in);
    check_same_dtype(kKind, out, in);
    from = in;
    gives = numels.empty() ? equal_blocks(group, in.numel()) : numels.vec();
    check_blocks(kKind, group, gives);
    check_numel(kKind, "in", in.numel(), sum(gives));
    check_numel(kKind, "out", out.numel(), gives[static_cast<size_t>(root)]);
  }
  return all_to_all(group, out, from, takes, gives);
}

Work send(const Group& group, const Tensor& tensor, int to, int tag) {
  check_tensor(Collective::send, tensor);
  check_root(Collective::send, group, to);
  record(group, Collective::send, tensor, 0);
  if (tensor.numel() == 0) return Work();
  std::vector<Tensor> tensors{as_bytes(tensor)};
  return start(group, Collective::send, tensor.device().type(),
               [&](const BackendPtr& backend) { return backend->send(tensors, to, tag); });
}

Work receive(const Group& group, const Tensor& tensor, int from, int tag) {
  check_tensor(Collective::receive, tensor);
  check_root(Collective::receive, group, from);
  record(group, Collective::receive, tensor, tensor.numel());
  if (tensor.numel() == 0) return Work();
  std::vector<Tensor> tensors{as_bytes(tensor)};
  return start(group, Collective::receive, tensor.device().type(),
               [&](const BackendPtr& backend) { return backend->recv(tensors, from, tag); });
}

void barrier(const Group& group) {
  if (group.size() == 1) return;
  start(group, Collective::barrier, c10::DeviceType::CPU, [](const BackendPtr& backend) {
    return backend->barrier({});
  }).wait();
}

std::vector<std::string> all_gather_text(const Group& group, std::string_view text) {
  const auto bytes = at::TensorOptions(c10::ScalarType::Byte);
  const Tensor length = at::empty({1}, bytes.dtype(c10::ScalarType::Long));
  length.fill_(static_cast<int64_t>(text.size()));
  const Tensor lengths = at::empty({group.size()}, length.options());
  all_gather(group, lengths, length).wait();
  const std::vector<int64_t> sizes(lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + group.size());
  const Tensor in = at::empty({static_cast<int64_t>(text.size())}, bytes);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(in.mutable_data_ptr<uint8_t>()));
  const Tensor out = at::empty({sum(sizes)}, bytes);
  all_gather_uneven(group, out, in, sizes).wait();
  std::vector<std::string> texts;
  const char* at = reinterpret_cast<const char*>(out.const_data_ptr<uint8_t>());
  for (const int64_t size : sizes) {
    texts.emplace_back(at, static_cast<size_t>(size));
    at += size;
  }
  return texts;
}

void agree(const Group& group, std::string_view operation, const std::function<void()>& check) {
  std::string mine;
  try {
    check();
  } catch (const std::exception& error) {
    mine = "x" + detail::message_of(error);  // a failure without a message is still one
  }
  const std::vector<std::string> all = all_gather_text(group, mine);
  std::vector<int64_t> failed;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].empty()) failed.push_back(group.ranks()[i]);
  }
  if (failed.empty()) return;
  ErrorText text(operation, fmt::format("{} of {} ranks failed", failed.size(), group.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].empty()) text.fact(fmt::format("rank {}", group.ranks()[i]), all[i].substr(1));
  }
  detail::throw_value_error(text.help("nothing was done on any rank; mend what these ranks say"));
}

CommRecorder::CommRecorder() : outer_(std::exchange(recorder, this)) {}
CommRecorder::~CommRecorder() { recorder = outer_; }

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
    const std::string what = fmt::format("{} {} on {}", call.name, call.dtype, call.group);
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.what == what; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{what});
    ++line->count;
    line->bytes += call.bytes;
  }
  std::string text;
  for (const Line& line : lines) text += fmt::format("{} x{} {} B\n", line.what, line.count, line.bytes);
  return text;
}

}  // namespace sherd
