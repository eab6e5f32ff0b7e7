// A transport also serves those who call its c10d::Backend themselves.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "conformance/sample.h"
#include "conformance/transport.h"

namespace sherd::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Fixture {
  explicit Fixture(Rank& r) : rank(r), backend(r.group.backend(r.options.device().type())), me(backend->getRank()) {}
  at::Tensor full(int64_t numel, int64_t value) const {
    return at::full({numel}, value, rank.options.dtype(at::kLong));
  }
  Tensors zeros(int64_t numel) const {
    Tensors blocks;
    for (int i = 0; i < backend->getSize(); ++i) blocks.push_back(full(numel, 0));
    return blocks;
  }
  Rank& rank;
  c10::intrusive_ptr<c10d::Backend> backend;
  int me;
};

TEST_P(TransportTest, ServesBroadcastReduceAndAllreduceOfC10d) {
  run([&](Rank& rank) {
    Fixture f(rank);
    Tensors tensors{f.full(3, f.me)};
    f.backend->broadcast(tensors, c10d::BroadcastOptions{.rootRank = ranks() - 1})->wait();
    EXPECT_TRUE(same_bits(tensors[0], f.full(3, ranks() - 1)));

    tensors = {f.full(3, f.me + 1)};
    f.backend->allreduce(tensors, c10d::AllreduceOptions())->wait();
    EXPECT_TRUE(same_bits(tensors[0], f.full(3, ranks() * (ranks() + 1) / 2)));

    tensors = {f.full(3, f.me + 1)};
    c10d::ReduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    options.rootRank = 0;
    f.backend->reduce(tensors, options)->wait();
    if (f.me == 0) {
      EXPECT_TRUE(same_bits(tensors[0], f.full(3, ranks())));
    }
  });
}

TEST_P(TransportTest, ServesAllgatherGatherAndScatterOfC10d) {
  run([&](Rank& rank) {
    Fixture f(rank);
    std::vector<Tensors> gathered{f.zeros(2)};
    Tensors input{f.full(2, f.me)};
    f.backend->allgather(gathered, input)->wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(gathered[0][static_cast<size_t>(i)], f.full(2, i)));

    at::Tensor whole = f.full(2 * ranks(), 0);
    f.backend->_allgather_base(whole, input[0])->wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(whole.narrow(0, 2 * i, 2), f.full(2, i)));

    if (rank.options.device().is_cuda() && f.backend->getBackendName() == "nccl") return;
    std::vector<Tensors> at_root;
    if (f.me == 0) at_root.push_back(f.zeros(2));
    f.backend->gather(at_root, input, c10d::GatherOptions{.rootRank = 0})->wait();
    if (f.me == 0) {
      for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(at_root[0][static_cast<size_t>(i)], f.full(2, i)));
    }

    std::vector<Tensors> from_root;
    if (f.me == 0) from_root = at_root;
    Tensors output{f.full(2, -1)};
    f.backend->scatter(output, from_root, c10d::ScatterOptions{.rootRank = 0})->wait();
    EXPECT_TRUE(same_bits(output[0], f.full(2, f.me)));
  });
}

TEST_P(TransportTest, ServesReduceScatterAndAlltoallOfC10d) {
  run([&](Rank& rank) {
    Fixture f(rank);
    at::Tensor ones = f.full(2 * ranks(), 1);
    at::Tensor mine = f.full(2, 0);
    f.backend->_reduce_scatter_base(mine, ones)->wait();
    EXPECT_TRUE(same_bits(mine, f.full(2, ranks())));

    std::vector<int64_t> rows;
    at::Tensor exchanged = f.full(ranks(), 0);
    at::Tensor given = f.full(ranks(), f.me);
    f.backend->alltoall_base(exchanged, given, rows, rows)->wait();
    EXPECT_TRUE(same_bits(exchanged, at::arange(ranks(), at::kLong)));

    // Rows of dim 0, each of three elements: i + 1 of them for rank i.
    std::vector<int64_t> out_rows(static_cast<size_t>(ranks()), f.me + 1);
    std::vector<int64_t> in_rows;
    for (int i = 0; i < ranks(); ++i) in_rows.push_back(i + 1);
    at::Tensor in = f.full(3 * ranks() * (ranks() + 1) / 2, f.me).view({-1, 3});
    at::Tensor out = f.full(int64_t{3} * ranks() * (f.me + 1), -1).view({-1, 3});
    f.backend->alltoall_base(out, in, out_rows, in_rows)->wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_EQ(out[i * (f.me + 1)][2].item<int64_t>(), i);
  });
}

TEST_P(TransportTest, ServesMessagesAndBarrierOfC10d) {
  run([&](Rank& rank) {
    Fixture f(rank);
    if (ranks() > 1) {
      Tensors outgoing{f.full(1, f.me)};
      Tensors incoming{f.full(1, -1)};
      const auto sent = f.backend->send(outgoing, (f.me + 1) % ranks(), 2);
      const auto received = f.backend->recv(incoming, (f.me + ranks() - 1) % ranks(), 2);
      received->wait();
      sent->wait();
      EXPECT_EQ(incoming[0].item<int64_t>(), (f.me + ranks() - 1) % ranks());
    }
    f.backend->barrier()->wait();
  });
}

TEST_P(TransportListsTest, ServesListsOfDifferentSizesOfC10d) {
  run([&](Rank& rank) {
    Fixture f(rank);
    const auto blocks = [&](int64_t value) {
      Tensors result;
      for (int i = 0; i < ranks(); ++i) result.push_back(f.full(i, value));
      return result;
    };
    std::vector<Tensors> gathered{blocks(-1)};
    Tensors input{f.full(f.me, f.me)};
    f.backend->allgather(gathered, input)->wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(gathered[0][static_cast<size_t>(i)], f.full(i, i)));

    Tensors output{f.full(f.me, 0)};
    std::vector<Tensors> parts{blocks(1)};
    f.backend->reduce_scatter(output, parts)->wait();
    EXPECT_TRUE(same_bits(output[0], f.full(f.me, ranks())));

    // Rank i gives rank k a block of k elements.
    Tensors gives = blocks(f.me);
    Tensors takes;
    for (int i = 0; i < ranks(); ++i) takes.push_back(f.full(f.me, -1));
    f.backend->alltoall(takes, gives)->wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(takes[static_cast<size_t>(i)], f.full(f.me, i)));
  });
}

TEST_P(TransportListsTest, TheWorkOfC10dTellsItsResult) {
  run([&](Rank& rank) {
    Fixture f(rank);
    Tensors tensors{f.full(1, 1)};
    const auto work = f.backend->allreduce(tensors);
    work->wait();
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
    EXPECT_TRUE(same_bits(work->result().at(0), tensors[0]));
    EXPECT_TRUE(same_bits(work->getFuture()->value().toTensorVector().at(0), tensors[0]));
  });
}

}  // namespace
}  // namespace sherd::testing
