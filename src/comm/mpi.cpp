#include "comm/mpi.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "comm/call_shape.h"
#include "comm/errors.h"
#include "comm/mpi_types.h"
#include "comm/rank_list.h"
#include "comm/transports.h"

namespace sherd::detail {
namespace {

using at::Tensor;

class MpiWork final : public c10d::Work {
 public:
  MpiWork(int rank, std::shared_ptr<MpiCall> call, std::vector<Tensor> result, std::function<void()> after,
          std::chrono::milliseconds timeout)
      : c10d::Work(rank),
        call_(std::move(call)),
        result_(std::move(result)),
        after_(std::move(after)),
        timeout_(timeout) {}

  bool isCompleted() override { return c10d::Work::isCompleted() || (MpiProcess::get().test(*call_) && settle()); }

  bool wait(std::chrono::milliseconds timeout) override {
    if (c10d::Work::isCompleted()) return c10d::Work::wait(timeout);  // again: the same answer
    try {
      MpiProcess::get().wait(*call_, timeout == kNoTimeout ? timeout_ : timeout);
      return settle();
    } catch (...) {
      finishAndThrow(std::current_exception());
    }
    return false;
  }

  std::vector<Tensor> result() override { return result_; }

  // c10d's futures are for those who cannot wait; here somebody must.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    wait(kNoTimeout);
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(result_));
    return future;
  }

 private:
  bool settle() {
    const std::lock_guard lock(settling_);
    if (c10d::Work::isCompleted()) return true;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (after_) after_();
    after_ = nullptr;
    finish();
    return true;
  }

  std::shared_ptr<MpiCall> call_;
  std::vector<Tensor> result_;
  std::function<void()> after_;  // what is left to do when MPI is done
  std::chrono::milliseconds timeout_;
  std::mutex settling_;
};

// Whether blocks lie one after the other in memory.
bool are_consecutive(const std::vector<Tensor>& blocks) {
  const char* end = nullptr;
  for (const Tensor& block : blocks) {
    if (block.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(block.const_data_ptr());
    if (end != nullptr && begin != end) return false;
    end = begin + block.nbytes();
  }
  return true;
}

// Where blocks that are consecutive begin.
char* begin_of(const std::vector<Tensor>& blocks) {
  for (const Tensor& block : blocks) {
    if (block.numel() > 0) return static_cast<char*>(block.mutable_data_ptr());
  }
  return nullptr;
}

int64_t bytes_of(const std::vector<Tensor>& blocks) {
  int64_t bytes = 0;
  for (const Tensor& block : blocks) bytes += static_cast<int64_t>(block.nbytes());
  return bytes;
}

MPI_Request& new_request(MpiCall& call) { return call.requests.emplace_back(MPI_REQUEST_NULL); }

// f(begin, count) for parts of at most `most` of `total`; once for nothing, where something must be sent all the same.
template <class F>
void in_parts(int64_t total, int64_t most, F f) {
  for (int64_t begin = 0; begin < total || begin == 0; begin += most) {
    f(begin, static_cast<int>(std::min(most, total - begin)));
  }
}

Tensor flat(const Tensor& tensor) { return tensor.view({-1}); }

}  // namespace

SyncBackend::WorkPtr MpiBackend::start(const Call& call, const std::function<void(MpiCall&)>& start,
                                       std::function<void()> after) const {
  auto started = MpiProcess::get().start([&](MpiCall& made) {
    made.tensors.insert(made.tensors.end(), call.inputs.begin(), call.inputs.end());
    made.tensors.insert(made.tensors.end(), call.outputs.begin(), call.outputs.end());
    start(made);
  });
  return c10::make_intrusive<MpiWork>(getRank(), std::move(started), call.outputs, std::move(after), timeout_);
}

SyncBackend::WorkPtr MpiBackend::finish(const Call& call) {
  check_blocks_per_rank(call, ranks_);
  const auto is_dense = [](const Tensor& tensor) { return tensor.is_contiguous(); };
  if (std::ranges::all_of(call.inputs, is_dense) && std::ranges::all_of(call.outputs, is_dense)) return begin(call);
  return SyncBackend::finish(call);  // what is copied there and back is over when it returns
}

void MpiBackend::run(const Call& call) {
  with_contiguous(call, [&](const Call& dense) { begin(dense)->wait(); });
}

SyncBackend::WorkPtr MpiBackend::begin(const Call& call) const {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  switch (call.kind) {
    case Collective::barrier:
      return start(call, [&](MpiCall& made) { check_mpi(MPI_Ibarrier(communicator_, &new_request(made)), "barrier"); });
    case Collective::broadcast:
      return broadcast_from_root(call);
    case Collective::all_reduce:
    case Collective::reduce:
      return reduce_whole(call);
    case Collective::reduce_scatter:
      return reduce_blocks(call);
    case Collective::all_gather:
      return bytes_of(call.outputs) <= most_ ? all_gather_at_once(call) : move(call);
    default:
      return move(call);
  }
}

SyncBackend::WorkPtr MpiBackend::broadcast_from_root(const Call& call) const {
  return start(call, [&](MpiCall& made) {
    auto* bytes = static_cast<char*>(call.outputs.front().mutable_data_ptr());
    in_parts(static_cast<int64_t>(call.outputs.front().nbytes()), most_, [&](int64_t begin, int count) {
      check_mpi(MPI_Ibcast(bytes + begin, count, MPI_BYTE, call.root, communicator_, &new_request(made)), "broadcast");
    });
  });
}

SyncBackend::WorkPtr MpiBackend::all_gather_at_once(const Call& call) const {
  // Ranks may differ in how their blocks lie, but must make the same call.
  const bool apart = !are_consecutive(call.outputs);
  std::vector<Tensor> blocks = call.outputs;
  if (apart) {
    const Tensor joined = at::empty({bytes_of(blocks)}, at::kByte);
    int64_t at = 0;
    for (Tensor& block : blocks) {
      const auto bytes = static_cast<int64_t>(block.nbytes());
      block = joined.narrow(0, at, bytes).view(block.scalar_type());
      at += bytes;
    }
  }
  copy_elements(blocks[static_cast<size_t>(getRank())], call.inputs.front());
  const auto begin = [&](MpiCall& made) {
    made.tensors.insert(made.tensors.end(), blocks.begin(), blocks.end());
    std::vector<int> counts;
    std::vector<int> places = {0};
    for (const Tensor& block : blocks) {
      counts.push_back(static_cast<int>(block.nbytes()));
      places.push_back(places.back() + counts.back());
    }
    made.counts = {std::move(counts), std::move(places)};
    check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, begin_of(blocks), made.counts[0].data(), made.counts[1].data(),
                              MPI_BYTE, communicator_, &new_request(made)),
              "all_gather");
  };
  if (!apart) return start(call, begin);
  return start(call, begin, [blocks, outputs = call.outputs] {
    for (size_t i = 0; i < blocks.size(); ++i) copy_elements(outputs[i], blocks[i]);
  });
}

// Whatever only moves blocks is an exchange between all, in which most may have nothing for each other. Blocks may lie
// anywhere and have any size, so each is a datatype of its own.
SyncBackend::WorkPtr MpiBackend::move(const Call& call) const {
  const auto size = static_cast<size_t>(getSize());
  const auto me = static_cast<size_t>(getRank());
  const auto root = static_cast<size_t>(std::max(call.root, 0));
  std::vector<Tensor> gives(size);
  std::vector<Tensor> takes(size);
  for (size_t i = 0; i < size; ++i) {
    switch (call.kind) {
      case Collective::all_gather:
        gives[i] = call.inputs.front();
        takes[i] = call.outputs[i];
        break;
      case Collective::gather:
        if (i == root) gives[i] = call.inputs.front();
        if (me == root) takes[i] = call.outputs[i];
        break;
      case Collective::scatter:
        if (me == root) gives[i] = call.inputs[i];
        if (i == root) takes[i] = call.outputs.front();
        break;
      default:
        gives[i] = call.inputs[i];
        takes[i] = call.outputs[i];
        break;
    }
  }
  if (gives[me].defined() && takes[me].defined()) copy_elements(takes[me], gives[me]);
  gives[me] = takes[me] = Tensor();
  return start(call, [&](MpiCall& made) {
    const auto describe = [&](const std::vector<Tensor>& blocks) {
      std::vector<int>& counts = made.counts.emplace_back();
      std::vector<MPI_Datatype>& types = made.lists.emplace_back();
      for (const Tensor& block : blocks) {
        const bool any = block.defined() && block.numel() > 0;
        counts.push_back(any ? 1 : 0);
        types.push_back(any ? memory_of(block, most_) : MPI_BYTE);
        if (any) made.types.push_back(types.back());
      }
    };
    made.counts.reserve(3);
    made.lists.reserve(2);
    describe(gives);
    describe(takes);
    made.counts.emplace_back(size, 0);  // the datatypes say where
    const int* places = made.counts[2].data();
    check_mpi(MPI_Ialltoallw(MPI_BOTTOM, made.counts[0].data(), places, made.lists[0].data(), MPI_BOTTOM,
                             made.counts[1].data(), places, made.lists[1].data(), communicator_, &new_request(made)),
              name_of(call.kind));
  });
}

SyncBackend::WorkPtr MpiBackend::reduce_whole(const Call& call) const {
  const Tensor tensor = flat(call.outputs.front());
  const c10::ScalarType type = reduced_in(tensor.scalar_type());
  const Tensor parts = tensor.to(type);  // itself where it has that dtype
  const bool all = call.kind == Collective::all_reduce;
  const bool root = call.root == getRank();
  const bool average = call.op == ReduceOp::avg;
  const auto after = [=, size = getSize()] {
    if (!all && !root) return;
    if (average) parts.div_(size);
    if (!parts.is_same(tensor)) tensor.copy_(parts);
  };
  const auto begin_reductions = [&](MpiCall& made) {
    made.tensors.push_back(parts);
    auto* begin = static_cast<char*>(parts.mutable_data_ptr());
    const MPI_Datatype element = element_of(type);
    const MPI_Op op = reduction_of(type, call.op);
    in_parts(parts.numel(), most_, [&](int64_t first, int count) {
      char* at = begin + first * static_cast<int64_t>(parts.element_size());
      MPI_Request& request = new_request(made);
      check_mpi(all ? MPI_Iallreduce(MPI_IN_PLACE, at, count, element, op, communicator_, &request)
                    : MPI_Ireduce(root ? MPI_IN_PLACE : at, root ? at : nullptr, count, element, op, call.root,
                                  communicator_, &request),
                name_of(call.kind));
    });
  };
  return start(call, begin_reductions, after);
}

SyncBackend::WorkPtr MpiBackend::reduce_blocks(const Call& call) const {
  const Tensor out = flat(call.outputs.front());
  const c10::ScalarType type = reduced_in(out.scalar_type());
  std::vector<Tensor> blocks;
  for (const Tensor& block : call.inputs) blocks.push_back(flat(block));
  Tensor joined;
  if (type != out.scalar_type() || !are_consecutive(blocks)) {
    joined = at::cat(blocks).to(type);
    std::vector<Tensor> views;
    int64_t at = 0;
    for (const Tensor& block : blocks) {
      views.push_back(joined.narrow(0, at, block.numel()));
      at += block.numel();
    }
    blocks = std::move(views);
  }
  // The block that this rank gets may be written where its own part of the input lies: MPI must not do so.
  const Tensor reduced = at::empty({out.numel()}, out.options().dtype(type));
  const bool average = call.op == ReduceOp::avg;
  const auto after = [=, size = getSize()] {
    if (average) reduced.div_(size);
    out.copy_(reduced);
  };
  const auto begin_reductions = [&](MpiCall& made) {
    made.tensors.insert(made.tensors.end(), {joined, reduced});
    const MPI_Datatype element = element_of(type);
    const MPI_Op op = reduction_of(type, call.op);
    const auto size = static_cast<int64_t>(reduced.element_size());
    if (bytes_of(blocks) <= most_) {
      std::vector<int>& counts = made.counts.emplace_back();
      for (const Tensor& block : blocks) counts.push_back(static_cast<int>(block.numel()));
      check_mpi(MPI_Ireduce_scatter(begin_of(blocks), reduced.mutable_data_ptr(), counts.data(), element, op,
                                    communicator_, &new_request(made)),
                "reduce_scatter");
      return;
    }
    // Too many for one call: block after block, each reduced at the rank that it is for.
    for (size_t i = 0; i < blocks.size(); ++i) {
      const bool mine = static_cast<int>(i) == getRank();
      in_parts(blocks[i].numel(), most_, [&](int64_t first, int count) {
        const char* from = static_cast<const char*>(blocks[i].const_data_ptr()) + first * size;
        char* to = mine ? static_cast<char*>(reduced.mutable_data_ptr()) + first * size : nullptr;
        check_mpi(MPI_Ireduce(from, to, count, element, op, static_cast<int>(i), communicator_, &new_request(made)),
                  "reduce_scatter");
      });
    }
  };
  return start(call, begin_reductions, after);
}

SyncBackend::WorkPtr MpiBackend::send(Tensors& tensors, int to, int tag) {
  const Tensor tensor = tensors.at(0).contiguous();
  const auto begin = [&](MpiCall& made) {
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    in_parts(static_cast<int64_t>(tensor.nbytes()), most_, [&](int64_t first, int count) {
      check_mpi(MPI_Isend(bytes + first, count, MPI_BYTE, to, tag, communicator_, &new_request(made)), "send");
    });
  };
  return start({.kind = Collective::send, .inputs = {tensor}}, begin);
}

SyncBackend::WorkPtr MpiBackend::recv(Tensors& tensors, int from, int tag) {
  const Tensor& given = tensors.at(0);
  const Tensor tensor = given.contiguous();
  const auto started = MpiProcess::get().start([&](MpiCall& made) {
    made.tensors = {tensor};
    auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
    in_parts(static_cast<int64_t>(tensor.nbytes()), most_, [&](int64_t first, int count) {
      check_mpi(MPI_Irecv(bytes + first, count, MPI_BYTE, from, tag, communicator_, &new_request(made)), "receive");
    });
  });
  const auto after = [call = started.get(), tensor, given] {
    int64_t came = 0;
    for (const MPI_Status& status : call->statuses) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      came += count;
    }
    if (came == static_cast<int64_t>(tensor.nbytes())) return copy_elements(given, tensor);
    throw_comm_error(ErrorText("receive", "the tensor sent does not fit the tensor given")
                         .fact("sent", fmt::format("{} bytes", came))
                         .fact("given", fmt::format("{} bytes", tensor.nbytes()))
                         .help("receive into a tensor of the sender's dtype and size"));
  };
  return c10::make_intrusive<MpiWork>(getRank(), started, Tensors{given}, after, timeout_);
}

void MpiBackend::run_send(const Tensor& tensor, int to, int tag) {
  Tensors tensors{tensor};
  send(tensors, to, tag)->wait();
}

std::function<void()> MpiBackend::start_receive(const Tensor& tensor, int from, int tag) {
  Tensors tensors{tensor};
  return [work = recv(tensors, from, tag)] { work->wait(); };
}

bool mpi_is_available() { return true; }

MpiWorld mpi_world() {
  const MpiProcess& process = MpiProcess::get();
  return {process.rank(), process.size(), process.local_rank(), process.local_size()};
}

std::string broadcast_by_mpi(const std::string& text, std::chrono::milliseconds timeout) {
  MpiProcess& process = MpiProcess::get();
  const auto from_first = [&](void* data, int64_t count) {
    const auto call = process.start([&](MpiCall& made) {
      check_mpi(MPI_Ibcast(data, static_cast<int>(count), MPI_BYTE, 0, MPI_COMM_WORLD, &new_request(made)),
                "broadcast");
    });
    process.wait(*call, timeout);
  };
  auto length = static_cast<int64_t>(text.size());
  from_first(&length, sizeof(length));
  std::string result = text;
  result.resize(static_cast<size_t>(length));
  from_first(result.data(), length);
  return result;
}

c10::intrusive_ptr<c10d::Backend> make_mpi(const Meeting& meeting, int64_t most_at_once) {
  const MpiProcess& process = MpiProcess::get();
  const int64_t me = meeting.ranks.at(static_cast<size_t>(meeting.rank));
  const int64_t last = *std::max_element(meeting.ranks.begin(), meeting.ranks.end());
  if (me != process.rank() || last >= process.size()) {
    throw_comm_error(ErrorText("group", "the ranks of this world are not those that MPI started")
                         .fact("group", "ranks " + rank_list(meeting.ranks) + fmt::format(", this is rank {}", me))
                         .fact("MPI", fmt::format("rank {} of {}", process.rank(), process.size()))
                         .help("mpirun -n 4 ./program"));
  }
  // MPI waits for ever for a rank that does not come; the store does not.
  std::vector<std::string> keys;
  for (int i = 0; i < meeting.size; ++i) keys.push_back(fmt::format("mpi/{}", i));
  meeting.store->set(keys[static_cast<size_t>(meeting.rank)], std::vector<uint8_t>{1});
  meeting.store->wait(keys, meeting.timeout);
  const std::vector<int> members(meeting.ranks.begin(), meeting.ranks.end());
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, meeting.size, members.data(), &group), "MPI_Group_incl");
  // Told apart from groups that other threads make meanwhile. Every MPI has tags up to 32767.
  const auto tag = static_cast<int>(std::hash<std::string>()(meeting.name + rank_list(meeting.ranks)) % 32768);
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &communicator), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return c10::make_intrusive<MpiBackend>(communicator, meeting.rank, meeting.ranks, meeting.timeout, most_at_once);
}

}  // namespace sherd::detail
