#include "sherd/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/arguments.h"
#include "comm/as_bytes.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/profiler_range.h"
#include "comm/recorder.h"
#include "comm/recording.h"
#include "comm/run_moves.h"
#include "comm/sync_backend.h"
#include "sherd/blocking.h"
#include "sherd/box.h"

namespace sherd {

void detail::check_reduction(const char* operation, const at::Tensor& tensor, ReduceOp op) {
  const auto refuse = [&](const char* problem, const char* help) {
    throw_value_error(ErrorText(operation, problem)
                          .fact("reduction", to_string(op))
                          .fact("dtype", dtype_name(tensor.scalar_type()))
                          .help(help));
  };
  const auto type = tensor.scalar_type();
  const bool floating = tensor.is_floating_point();
  const bool narrow = floating && tensor.element_size() == 1;
  if (narrow || c10::isBarebonesUnsignedType(type) || c10::isQIntType(type)) {
    refuse("tensors of this dtype can only be moved", "tensor.to(torch::kFloat)");
  }
  if (type == c10::ScalarType::Bool && op == ReduceOp::avg) refuse("bool has no average", "tensor.to(torch::kFloat)");
  if (tensor.is_complex()) {
    const bool multiplies = op == ReduceOp::product && type != c10::ScalarType::ComplexHalf;
    if (op != ReduceOp::sum && op != ReduceOp::avg && !multiplies) {
      refuse("complex numbers can only be summed or multiplied", "ReduceOp::sum");
    }
    return;
  }
  if (op == ReduceOp::avg && !floating) refuse("integers have no average", "tensor.to(torch::kFloat)");
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (bitwise && floating) refuse("bitwise reductions are for integers", "ReduceOp::min, or max");
}

namespace {

using at::Tensor;
using detail::as_bytes;
using detail::Call;
using detail::check_blocks;
using detail::check_numel;
using detail::check_pair;
using detail::check_place;
using detail::check_reduction;
using detail::check_tag;
using detail::check_tensor;
using detail::Collective;
using detail::name_of;
using detail::record;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The backend that serves a call, and what it does by itself; the rest is composed here.
struct Transport {
  c10d::Backend& backend;
  bool ours;      // every dtype, every reduction, blocks of any size
  bool compares;  // calls are compared always
  bool lists;     // all_gather and reduce_scatter of blocks of different sizes
  bool average;
  bool bitwise;
};

Transport transport_of(c10d::Backend& backend) {
  const auto* own = dynamic_cast<const detail::SyncBackend*>(&backend);
  const bool ours = own != nullptr;
  const bool nccl = backend.getBackendName() == "nccl";
  return {backend, ours, ours && own->compares_calls(), ours || nccl, ours || nccl, !nccl};
}

/// What `begin` below returns: nothing where nothing is left to wait for.
struct Started {
  WorkPtr work = {};
  std::function<void()> after = {};  // once `work` is over
};

// Runs `begin` on the transport for `device` and turns whatever goes wrong, now or when waiting, into sherd's error.
// `make_call` says what this rank calls: asked where calls are recorded, or are to be compared (with `check`, and those
// that serve a move) and the transport does not do it.
template <class MakeCall, class Begin>
Work run(const Group& group, Collective kind, c10::DeviceType device, detail::Recorded recorded, MakeCall make_call,
         Begin begin) {
  const detail::CommRange range(group, kind, recorded.bytes);
  const detail::BlockingScope blocking;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::intrusive_ptr<c10d::Backend> backend;
  Started started;
  try {
    backend = group.state().transport(device, name_of(kind));
    auto* recording = dynamic_cast<detail::RecordingBackend*>(backend.get());
    const Transport transport = transport_of(recording != nullptr ? recording->inner() : *backend);
    if (recording != nullptr) recording->note(make_call());
    // The calls of two moves may fit together and mean different things. A GPU would have to be waited for, and what
    // a backend of the program's own can do is not known.
    const bool known = transport.ours || transport.backend.getBackendName() == "gloo";
    const bool moves = known && device == c10::DeviceType::CPU && detail::current_purpose() != nullptr;
    if ((moves || group.state().link().check) && !transport.compares && detail::all_ranks_call(kind)) {
      detail::compare_calls(transport.backend, group.ranks(), make_call());
    }
    started = begin(transport);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) {
    backend.reset();
    group.state().rethrow(name_of(kind));
  }
  if (!started.work && !started.after) return Work();
  return Work([group, kind, recorded = std::move(recorded), under_way = group.state().under_way(),
               started = std::move(started)]() mutable {
    const detail::Recorded until_the_end = std::exchange(recorded, {});
    const detail::CommRange inner_range(group, kind, until_the_end.bytes, /*waits=*/true);
    const detail::BlockingScope inner_blocking;
    try {
      if (started.work) started.work->wait();
    } catch (const std::exception&) {
      started = {};
      under_way.reset();
      group.state().rethrow(name_of(kind));
    }
    under_way.reset();
    at::AutoDispatchBelowADInplaceOrView inner_below_autograd;
    if (started.after) started.after();
  });
}

// Autograd must learn that a tensor it may have saved has other contents now.
void mark_written(const Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

int64_t sum(c10::IntArrayRef numels) { return std::accumulate(numels.begin(), numels.end(), int64_t{0}); }

bool all_equal(c10::IntArrayRef numels) { return std::equal(numels.begin() + 1, numels.end(), numels.begin()); }

std::vector<int64_t> equal_blocks(const char* operation, const char* what, const Group& group, int64_t numel) {
  const int64_t each = numel / group.size();
  if (each * group.size() != numel) {
    detail::throw_value_error(
        ErrorText(operation, fmt::format("{} does not divide into one equal block per rank", what))
            .fact("elements", std::to_string(numel))
            .fact("group", group.name())
            .help("pass the size of each block"));
  }
  return std::vector<int64_t>(static_cast<size_t>(group.size()), each);
}

// Transports of torch do not know every dtype; what only moves can move as bytes.
Tensor movable(const Transport& transport, const Tensor& tensor) { return transport.ours ? tensor : as_bytes(tensor); }

std::vector<int64_t> scaled(c10::IntArrayRef numels, int64_t factor) {
  std::vector<int64_t> result(numels.begin(), numels.end());
  for (int64_t& n : result) n *= factor;
  return result;
}
std::vector<int64_t> movable(const Transport& transport, c10::IntArrayRef numels, const Tensor& tensor) {
  return scaled(numels, transport.ours ? 1 : static_cast<int64_t>(tensor.element_size()));
}

std::vector<Tensor> blocks_of(const Tensor& whole, c10::IntArrayRef numels) {
  const Tensor flat = whole.view({-1});
  std::vector<Tensor> blocks;
  blocks.reserve(numels.size());
  int64_t offset = 0;
  for (const int64_t n : numels) {
    blocks.push_back(flat.narrow(0, offset, n));
    offset += n;
  }
  return blocks;
}

// The bits of floats as integers that have their order: those of negative numbers, but for the sign, are turned around.
// Twice is not at all.
Tensor turned(const Tensor& bits) {
  const bool wide = bits.scalar_type() == c10::ScalarType::Long;
  const int64_t all_but_sign = wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  return at::bitwise_xor(bits, at::bitwise_and(at::bitwise_right_shift(bits, wide ? 63 : 31), all_but_sign));
}

// Floats as integers in their order, with those that are not numbers beyond the last: Gloo and NCCL lose these from the
// extremes of floats, and torch keeps them.
Tensor in_order(const Tensor& floats, ReduceOp op) {
  const bool wide = floats.scalar_type() == c10::ScalarType::Double;
  const Tensor exact = wide ? floats : floats.to(c10::ScalarType::Float);
  const Tensor numbers = turned(exact.view(wide ? c10::ScalarType::Long : c10::ScalarType::Int));
  using Long = std::numeric_limits<int64_t>;
  using Int = std::numeric_limits<int32_t>;
  const int64_t beyond = op == ReduceOp::max ? (wide ? Long::max() : Int::max()) : (wide ? Long::min() : Int::min());
  return numbers.masked_fill(at::isnan(exact), beyond);
}

Tensor out_of_order(const Tensor& numbers) {
  const bool wide = numbers.scalar_type() == c10::ScalarType::Long;
  return turned(numbers).view(wide ? c10::ScalarType::Double : c10::ScalarType::Float);
}

// A tensor and a reduction that the transport knows, standing for those asked for.
struct Reducible {
  Tensor tensor;  // a view of the one asked for; a copy where it has another dtype
  ReduceOp op;
  bool copied = false;
  bool divide = false;   // by the number of ranks, afterwards
  bool ordered = false;  // copied by in_order
};

Reducible reducible(const Transport& transport, const Tensor& tensor, ReduceOp op) {
  // Sums of ComplexHalf are known to nobody.
  if (transport.ours && tensor.scalar_type() != c10::ScalarType::ComplexHalf) return {tensor, op};
  if (tensor.scalar_type() == c10::ScalarType::Bool) {
    if (op == ReduceOp::bxor) return {as_bytes(tensor), op};
    const bool any = op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bor;
    return {as_bytes(tensor), any ? ReduceOp::max : ReduceOp::min};
  }
  Reducible what{tensor.view({-1}), op};
  if (tensor.is_complex() && op != ReduceOp::product) what.tensor = at::view_as_real(what.tensor).view({-1});
  if (tensor.scalar_type() == c10::ScalarType::Short) {  // known to neither Gloo nor NCCL
    what.tensor = what.tensor.to(c10::ScalarType::Int);
    what.copied = true;
  }
  if (tensor.is_floating_point() && (op == ReduceOp::min || op == ReduceOp::max)) {
    what.tensor = in_order(what.tensor, op);
    what.copied = what.ordered = true;
  }
  if (op == ReduceOp::avg && !transport.average) {
    what.op = ReduceOp::sum;
    what.divide = true;
  }
  return what;
}

// What is left to do when `what`, standing for `tensor`, has been reduced.
std::function<void()> finishing(const Reducible& what, const Tensor& tensor, int ranks) {
  if (!what.copied && !what.divide) return {};
  return [what, tensor, ranks] {
    if (what.divide) what.tensor.div_(ranks);
    if (what.copied) tensor.view({-1}).copy_(what.ordered ? out_of_order(what.tensor) : what.tensor);
  };
}

bool reduces_itself(const Transport& transport, const Tensor& tensor, ReduceOp op) {
  if (tensor.is_complex() && op == ReduceOp::product) return transport.ours;
  return transport.bitwise || (op != ReduceOp::band && op != ReduceOp::bor && op != ReduceOp::bxor);
}

// For reductions that the transport does not know: every rank gets all parts and reduces them in rank order.
Started gather_and_reduce(const Transport& transport, const Tensor& inout, ReduceOp op) {
  const int n = transport.backend.getSize();
  Tensor parts = at::empty({inout.numel() * n}, inout.options());
  Tensor bytes = as_bytes(parts);
  Tensor mine = as_bytes(inout);
  const std::vector<int64_t> numels(static_cast<size_t>(n), inout.numel());
  return {transport.backend._allgather_base(bytes, mine, {}),
          [=] { detail::reduce_into(inout.view({-1}), blocks_of(parts, numels), op); }};
}

// Gloo has no collective for blocks of different sizes. A ring moves each block n - 1 times and copies nothing.
void ring_all_gather(c10d::Backend& backend, const std::vector<Tensor>& blocks) {
  const int n = backend.getSize();
  const int me = backend.getRank();
  const auto block = [&](int i) { return std::vector<Tensor>{blocks[static_cast<size_t>((i + 2 * n) % n)]}; };
  for (int step = 0; step + 1 < n; ++step) {
    std::vector<Tensor> outgoing = block(me - step);
    std::vector<Tensor> incoming = block(me - step - 1);
    const int tag = detail::kMaxTag + 1 + step;
    const WorkPtr sent = outgoing[0].numel() > 0 ? backend.send(outgoing, (me + 1) % n, tag) : nullptr;
    const WorkPtr received = incoming[0].numel() > 0 ? backend.recv(incoming, (me + n - 1) % n, tag) : nullptr;
    if (received) received->wait();
    if (sent) sent->wait();
  }
}

}  // namespace

Work all_gather(const Group& group, const Tensor& out, const Tensor& in) {
  constexpr auto kKind = Collective::all_gather;
  check_tensor("all_gather", "in", in);
  check_tensor("all_gather", "out", out);
  check_pair("all_gather", out, in);
  check_numel("all_gather", "out", out.numel(), in.numel() * group.size());
  detail::Recorded recorded = record(group, kKind, in, out.numel() - in.numel());
  mark_written(out);
  const auto call = [&] {
    const std::vector<int64_t> numels(static_cast<size_t>(group.size()), in.numel());
    return Call{.kind = kKind, .inputs = {in}, .outputs = blocks_of(out, numels)};
  };
  return run(group, kKind, in.device().type(), std::move(recorded), call, [&](const Transport& transport) -> Started {
    if (out.numel() == 0 && !transport.ours) return {};
    Tensor to = movable(transport, out);
    Tensor from = movable(transport, in);
    return {transport.backend._allgather_base(to, from, {})};
  });
}

Work all_gather_uneven(const Group& group, const Tensor& out, const Tensor& in, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::all_gather;
  check_tensor("all_gather_uneven", "in", in);
  check_tensor("all_gather_uneven", "out", out);
  check_pair("all_gather_uneven", out, in);
  check_blocks("all_gather_uneven", group, numels);
  check_numel("all_gather_uneven", "in", in.numel(), numels[static_cast<size_t>(group.rank())]);
  check_numel("all_gather_uneven", "out", out.numel(), sum(numels));
  if (all_equal(numels)) return all_gather(group, out, in);
  detail::Recorded recorded = record(group, kKind, in, out.numel() - in.numel());
  mark_written(out);
  const auto call = [&] { return Call{.kind = kKind, .inputs = {in}, .outputs = blocks_of(out, numels)}; };
  return run(group, kKind, in.device().type(), std::move(recorded), call, [&](const Transport& transport) -> Started {
    std::vector<std::vector<Tensor>> blocks{blocks_of(movable(transport, out), movable(transport, numels, out))};
    std::vector<Tensor> from{movable(transport, in)};
    if (transport.lists) return {transport.backend.allgather(blocks, from, {})};
    detail::copy_elements(blocks[0][static_cast<size_t>(group.rank())], from[0]);
    ring_all_gather(transport.backend, blocks[0]);
    return {};
  });
}

Work all_reduce(const Group& group, const Tensor& inout, ReduceOp op) {
  constexpr auto kKind = Collective::all_reduce;
  check_tensor("all_reduce", "inout", inout);
  check_reduction("all_reduce", inout, op);
  // A ring sends and receives every element twice, less this rank's share.
  detail::Recorded recorded = record(group, kKind, inout, 2 * inout.numel() * (group.size() - 1) / group.size());
  mark_written(inout);
  const auto call = [&] { return Call{.kind = kKind, .inputs = {inout}, .outputs = {inout}, .op = op}; };
  return run(group, kKind, inout.device().type(), std::move(recorded), call,
             [&](const Transport& transport) -> Started {
               if (inout.numel() == 0 && !transport.ours) return {};
               if (!reduces_itself(transport, inout, op)) return gather_and_reduce(transport, inout, op);
               const Reducible what = reducible(transport, inout, op);
               std::vector<Tensor> tensors{what.tensor};
               c10d::AllreduceOptions options;
               options.reduceOp = detail::to_c10d(what.op);
               return {transport.backend.allreduce(tensors, options), finishing(what, inout, group.size())};
             });
}

Work reduce_scatter(const Group& group, const Tensor& out, const Tensor& in, ReduceOp op, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::reduce_scatter;
  check_tensor("reduce_scatter", "in", in);
  check_tensor("reduce_scatter", "out", out);
  check_pair("reduce_scatter", out, in);
  check_reduction("reduce_scatter", in, op);
  const std::vector<int64_t> sizes =
      numels.empty() ? std::vector<int64_t>(static_cast<size_t>(group.size()), out.numel()) : numels.vec();
  check_blocks("reduce_scatter", group, sizes);
  check_numel("reduce_scatter", "out", out.numel(), sizes[static_cast<size_t>(group.rank())]);
  check_numel("reduce_scatter", "in", in.numel(), sum(sizes));
  detail::Recorded recorded = record(group, kKind, in, out.numel() * (group.size() - 1));
  mark_written(out);
  const auto call = [&] { return Call{.kind = kKind, .inputs = blocks_of(in, sizes), .outputs = {out}, .op = op}; };
  return run(group, kKind, in.device().type(), std::move(recorded), call, [&](const Transport& transport) -> Started {
    if (in.numel() == 0 && !transport.ours) return {};
    Reducible from = reducible(transport, in, op);
    Reducible to = reducible(transport, out, op);
    const std::vector<int64_t> counts = scaled(sizes, in.numel() == 0 ? 1 : from.tensor.numel() / in.numel());
    const auto after = finishing(to, out, group.size());
    if (transport.lists && reduces_itself(transport, in, op)) {
      std::vector<Tensor> outputs{to.tensor};
      std::vector<std::vector<Tensor>> inputs{blocks_of(from.tensor, counts)};
      c10d::ReduceScatterOptions options;
      options.reduceOp = detail::to_c10d(from.op);
      return {transport.backend.reduce_scatter(outputs, inputs, options), after};
    }
    // Exchange the blocks and reduce them here, in rank order. As many bytes as a ring needs.
    const std::vector<int64_t> rows(counts.size(), to.tensor.numel());
    const auto width = static_cast<int64_t>(to.tensor.element_size());
    std::vector<int64_t> in_rows = scaled(counts, width);  // Gloo takes these lists away
    std::vector<int64_t> out_rows = scaled(rows, width);
    Tensor parts = at::empty({sum(rows)}, to.tensor.options());
    Tensor incoming = as_bytes(parts);
    Tensor outgoing = as_bytes(from.tensor);
    return {transport.backend.alltoall_base(incoming, outgoing, out_rows, in_rows, {}), [to, parts, rows, after] {
              if (to.tensor.numel() > 0) detail::reduce_into(to.tensor, blocks_of(parts, rows), to.op);
              if (after) after();
            }};
  });
}

Work all_to_all(const Group& group, const Tensor& out, const Tensor& in, c10::IntArrayRef out_numels,
                c10::IntArrayRef in_numels) {
  constexpr auto kKind = Collective::all_to_all;
  check_tensor("all_to_all", "in", in);
  check_tensor("all_to_all", "out", out);
  check_pair("all_to_all", out, in);
  const auto sizes = [&](const char* what, const Tensor& tensor, c10::IntArrayRef numels) {
    if (numels.empty()) return equal_blocks("all_to_all", what, group, tensor.numel());
    check_blocks("all_to_all", group, numels);
    check_numel("all_to_all", what, tensor.numel(), sum(numels));
    return numels.vec();
  };
  const std::vector<int64_t> gives = sizes("in", in, in_numels);
  const std::vector<int64_t> takes = sizes("out", out, out_numels);
  const auto me = static_cast<size_t>(group.rank());
  if (gives[me] != takes[me]) {
    detail::throw_value_error(ErrorText("all_to_all", "what this rank gives itself is not what it takes")
                                  .fact("gives", std::to_string(gives[me]))
                                  .fact("takes", std::to_string(takes[me]))
                                  .help(fmt::format("in_numels[{}] == out_numels[{}]", me, me)));
  }
  detail::Recorded recorded = record(group, kKind, in, out.numel() - takes[me]);
  mark_written(out);
  const auto call = [&] {
    return Call{.kind = kKind, .inputs = blocks_of(in, gives), .outputs = blocks_of(out, takes)};
  };
  return run(group, kKind, in.device().type(), std::move(recorded), call, [&](const Transport& transport) -> Started {
    std::vector<int64_t> in_rows = movable(transport, gives, in);
    std::vector<int64_t> out_rows = movable(transport, takes, out);
    Tensor to = movable(transport, out).view({-1});
    Tensor from = movable(transport, in).view({-1});
    return {transport.backend.alltoall_base(to, from, out_rows, in_rows, {})};
  });
}

namespace {

// Tensors that say how many elements of which dtype each block has.
std::vector<Tensor> stand_ins(const std::vector<detail::ByteRuns>& blocks, const Tensor& like) {
  const Tensor one = at::empty({1}, like.options());
  std::vector<Tensor> tensors;
  tensors.reserve(blocks.size());
  for (const detail::ByteRuns& block : blocks) {
    tensors.push_back(one.expand({static_cast<int64_t>(block.size() / like.element_size())}));
  }
  return tensors;
}

void move_runs(const Group& group, Collective kind, const detail::RunMove& move) {
  const auto elements = [&](const std::vector<detail::ByteRuns>& blocks) {
    size_t bytes = 0;
    for (const detail::ByteRuns& block : blocks) bytes += block.size();
    return static_cast<int64_t>(bytes / move.like.element_size());
  };
  const size_t own = move.takes[static_cast<size_t>(group.rank())].size() / move.like.element_size();
  const Tensor sent = at::empty({1}, move.like.options()).expand({elements(move.gives)});
  detail::Recorded recorded = record(group, kind, sent, elements(move.takes) - static_cast<int64_t>(own));
  const Call call{
      .kind = kind, .inputs = stand_ins(move.gives, move.like), .outputs = stand_ins(move.takes, move.like)};
  const auto begin = [&](const Transport& transport) -> Started {
    dynamic_cast<detail::TakesRuns&>(transport.backend).run_runs(call, move);
    return {};
  };
  run(
      group, kind, c10::DeviceType::CPU, std::move(recorded), [&] { return call; }, begin)
      .wait();
}

}  // namespace

bool detail::moves_runs(const Group& group, c10::DeviceType device, const char* operation) {
  if (device != c10::DeviceType::CPU) return false;
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    backend = group.state().transport(device, operation);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) {
    group.state().rethrow(operation);
  }
  auto* recording = dynamic_cast<RecordingBackend*>(backend.get());
  return dynamic_cast<const TakesRuns*>(recording != nullptr ? &recording->inner() : backend.get()) != nullptr;
}

void detail::all_to_all_runs(const Group& group, const RunMove& move) {
  move_runs(group, Collective::all_to_all, move);
}

void detail::all_gather_runs(const Group& group, const RunMove& move) {
  move_runs(group, Collective::all_gather, move);
}

Work broadcast(const Group& group, const Tensor& inout, int root) {
  constexpr auto kKind = Collective::broadcast;
  check_tensor("broadcast", "inout", inout);
  check_place("broadcast", group, root);
  detail::Recorded recorded = record(group, kKind, inout, group.rank() == root ? 0 : inout.numel());
  if (group.rank() != root) mark_written(inout);
  const auto call = [&] { return Call{.kind = kKind, .inputs = {inout}, .outputs = {inout}, .root = root}; };
  return run(group, kKind, inout.device().type(), std::move(recorded), call,
             [&](const Transport& transport) -> Started {
               if (inout.numel() == 0 && !transport.ours) return {};
               std::vector<Tensor> tensors{movable(transport, inout)};
               c10d::BroadcastOptions options;
               options.rootRank = root;
               return {transport.backend.broadcast(tensors, options)};
             });
}

Work scatter(const Group& group, const Tensor& out, const Tensor& in, int root, c10::IntArrayRef numels) {
  constexpr auto kKind = Collective::scatter;
  check_tensor("scatter", "out", out);
  check_place("scatter", group, root);
  const bool gives = group.rank() == root;
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 0);
  if (gives) {
    check_tensor("scatter", "in", in);
    check_pair("scatter", out, in);
    sizes = numels.empty() ? equal_blocks("scatter", "in", group, in.numel()) : numels.vec();
    check_blocks("scatter", group, sizes);
    check_numel("scatter", "in", in.numel(), sum(sizes));
    check_numel("scatter", "out", out.numel(), sizes[static_cast<size_t>(root)]);
  }
  detail::Recorded recorded = record(group, kKind, gives ? in : out, gives ? 0 : out.numel());
  mark_written(out);
  const auto blocks = [&] { return gives ? blocks_of(in, sizes) : std::vector<Tensor>(); };
  const auto call = [&] { return Call{.kind = kKind, .inputs = blocks(), .outputs = {out}, .root = root}; };
  return run(group, kKind, out.device().type(), std::move(recorded), call, [&](const Transport& transport) -> Started {
    if (transport.ours) {
      std::vector<Tensor> outputs{out};
      std::vector<std::vector<Tensor>> inputs{blocks()};
      c10d::ScatterOptions options;
      options.rootRank = root;
      return {transport.backend.scatter(outputs, inputs, options)};
    }
    // An all_to_all in which the root alone gives: it takes blocks of any size.
    std::vector<int64_t> out_rows(sizes.size(), 0);
    out_rows[static_cast<size_t>(root)] = out.numel() * static_cast<int64_t>(out.element_size());
    std::vector<int64_t> in_rows = movable(transport, sizes, out);
    Tensor to = movable(transport, out);
    Tensor from = gives ? movable(transport, in) : at::empty({0}, to.options());
    return {transport.backend.alltoall_base(to, from, out_rows, in_rows, {})};
  });
}

Work send(const Group& group, const Tensor& tensor, int to, int tag) {
  check_tensor("send", "tensor", tensor);
  check_place("send", group, to);
  check_tag("send", tag);
  detail::Recorded recorded = record(group, Collective::send, tensor, 0);
  if (to == group.rank()) {
    group.state().send_to_self(tensor, tag);
    return Work();
  }
  const auto call = [&] { return Call{.kind = Collective::send, .inputs = {tensor}}; };
  return run(group, Collective::send, tensor.device().type(), std::move(recorded), call,
             [&](const Transport& transport) -> Started {
               if (tensor.numel() == 0) return {};
               std::vector<Tensor> tensors{movable(transport, tensor)};
               return {transport.backend.send(tensors, to, tag)};
             });
}

Work receive(const Group& group, const Tensor& tensor, int from, int tag) {
  check_tensor("receive", "tensor", tensor);
  check_place("receive", group, from);
  check_tag("receive", tag);
  detail::Recorded recorded = record(group, Collective::receive, tensor, from == group.rank() ? 0 : tensor.numel());
  mark_written(tensor);
  if (from == group.rank()) {
    const uint64_t turn = group.state().take_turn(tag);
    return Work([=] { group.state().receive_from_self(tensor, tag, turn); });
  }
  const auto call = [&] { return Call{.kind = Collective::receive, .outputs = {tensor}}; };
  return run(group, Collective::receive, tensor.device().type(), std::move(recorded), call,
             [&](const Transport& transport) -> Started {
               if (tensor.numel() == 0) return {};
               std::vector<Tensor> tensors{movable(transport, tensor)};
               return {transport.backend.recv(tensors, from, tag)};
             });
}

void barrier(const Group& group) {
  detail::Recorded recorded = record(group, Collective::barrier, {}, 0);
  const auto device = group.state().serves(c10::DeviceType::CPU) ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
  const auto call = [] { return Call{.kind = Collective::barrier}; };
  run(group, Collective::barrier, device, std::move(recorded), call, [](const Transport& transport) -> Started {
    return {transport.backend.barrier({})};
  }).wait();
}

std::vector<std::string> all_gather_text(const Group& group, std::string_view text) {
  // Short texts travel with their lengths; what is longer follows.
  constexpr size_t kBlock = 256;
  constexpr size_t kShort = kBlock - sizeof(uint64_t);
  const auto bytes = at::TensorOptions(c10::ScalarType::Byte);
  const Tensor block = at::zeros({static_cast<int64_t>(kBlock)}, bytes);
  const uint64_t length = text.size();
  std::memcpy(block.mutable_data_ptr<uint8_t>(), &length, sizeof(length));
  std::memcpy(block.mutable_data_ptr<uint8_t>() + sizeof(length), text.data(), std::min(text.size(), kShort));
  const Tensor blocks = at::empty({group.size(), static_cast<int64_t>(kBlock)}, bytes);
  all_gather(group, blocks, block).wait();
  std::vector<std::string> texts;
  std::vector<int64_t> rests;
  for (int i = 0; i < group.size(); ++i) {
    const char* at = reinterpret_cast<const char*>(blocks.const_data_ptr<uint8_t>()) + static_cast<size_t>(i) * kBlock;
    uint64_t size = 0;
    std::memcpy(&size, at, sizeof(size));
    texts.emplace_back(at + sizeof(size), std::min<size_t>(size, kShort));
    rests.push_back(static_cast<int64_t>(size - texts.back().size()));
  }
  if (sum(rests) == 0) return texts;
  const std::string_view rest = text.substr(std::min(text.size(), kShort));
  const Tensor in = at::empty({static_cast<int64_t>(rest.size())}, bytes);
  std::copy(rest.begin(), rest.end(), in.mutable_data_ptr<uint8_t>());
  const Tensor out = at::empty({sum(rests)}, bytes);
  all_gather_uneven(group, out, in, rests).wait();
  const char* at = reinterpret_cast<const char*>(out.const_data_ptr<uint8_t>());
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].append(at, static_cast<size_t>(rests[i]));
    at += rests[i];
  }
  return texts;
}

}  // namespace sherd
