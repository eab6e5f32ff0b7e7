// What every collective does, on every transport.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "conformance/sample.h"
#include "conformance/transport.h"

namespace sherd::testing {
namespace {

using Numels = std::vector<int64_t>;

int64_t sum(const Numels& numels) { return std::accumulate(numels.begin(), numels.end(), int64_t{0}); }

// What each rank gives and gets in an uneven collective: 0, 3, 1, 4, 2, 0, ... elements.
Numels uneven(int ranks) {
  Numels numels;
  for (int i = 0; i < ranks; ++i) numels.push_back(i * 3 % 5);
  return numels;
}

at::Tensor joined(int ranks, const Numels& numels, at::ScalarType dtype, const at::TensorOptions& options) {
  std::vector<at::Tensor> blocks;
  for (int i = 0; i < ranks; ++i) blocks.push_back(sample(i, numels[static_cast<size_t>(i)], dtype, options));
  return at::cat(blocks);
}

at::Tensor block(const at::Tensor& whole, const Numels& numels, int i) {
  const int64_t begin = std::accumulate(numels.begin(), numels.begin() + i, int64_t{0});
  return whole.narrow(0, begin, numels[static_cast<size_t>(i)]);
}

at::Tensor empty_like(int64_t numel, at::ScalarType dtype, const Rank& rank) {
  return at::zeros({numel}, rank.options.dtype(dtype));
}

// Averages are exact, too.
at::Tensor sample_for(ReduceOp op, int seed, int64_t numel, at::ScalarType dtype, const Rank& rank) {
  const at::Tensor values = sample(seed, numel, dtype, rank.options);
  return op == ReduceOp::avg ? values * rank.group.size() : values;
}

TEST_P(TransportTest, AllGatherPutsEveryDtypeInRankOrder) {
  run([&](Rank& rank) {
    for (const auto dtype : kDtypes) {
      const at::Tensor out = empty_like(5 * ranks(), dtype, rank);
      all_gather(rank.group, out, sample(rank.group.rank(), 5, dtype, rank.options)).wait();
      const at::Tensor expected = joined(ranks(), Numels(static_cast<size_t>(ranks()), 5), dtype, rank.options);
      EXPECT_TRUE(same_bits(out, expected)) << name_of(dtype) << "\n" << out;
    }
  });
}

TEST_P(TransportTest, AllGatherUnevenTakesBlocksOfAnySize) {
  run([&](Rank& rank) {
    Numels one_has_all(static_cast<size_t>(ranks()), 0);
    one_has_all.back() = 7;
    const Numels nothing(static_cast<size_t>(ranks()), 0);
    const Numels even(static_cast<size_t>(ranks()), 2);
    for (const Numels& numels : {uneven(ranks()), one_has_all, nothing, even}) {
      for (const auto dtype : kDtypes) {
        const at::Tensor in =
            sample(rank.group.rank(), numels[static_cast<size_t>(rank.group.rank())], dtype, rank.options);
        const at::Tensor out = empty_like(sum(numels), dtype, rank);
        all_gather_uneven(rank.group, out, in, numels).wait();
        EXPECT_TRUE(same_bits(out, joined(ranks(), numels, dtype, rank.options))) << name_of(dtype) << "\n" << out;
      }
    }
  });
}

TEST_P(TransportTest, AllReduceKnowsEveryReductionOfEveryDtype) {
  run([&](Rank& rank) {
    for (const auto dtype : kReducibleDtypes) {
      for (const ReduceOp op : kReductions) {
        if (!allowed(dtype, op)) continue;
        std::vector<at::Tensor> parts;
        for (int i = 0; i < ranks(); ++i) parts.push_back(sample_for(op, i, 9, dtype, rank).view({3, 3}));
        const at::Tensor inout = parts[static_cast<size_t>(rank.group.rank())].clone();
        all_reduce(rank.group, inout, op).wait();
        EXPECT_TRUE(same_bits(inout, reduced(parts, op))) << to_string(op) << " " << name_of(dtype) << "\n" << inout;
        EXPECT_EQ(inout.sizes(), at::IntArrayRef({3, 3}));
      }
    }
  });
}

TEST_P(TransportTest, ReduceScatterKnowsEveryReductionOfEveryDtype) {
  run([&](Rank& rank) {
    const Numels even(static_cast<size_t>(ranks()), 3);
    for (const Numels& numels : {even, uneven(ranks())}) {
      for (const auto dtype : kReducibleDtypes) {
        for (const ReduceOp op : kReductions) {
          if (!allowed(dtype, op)) continue;
          std::vector<at::Tensor> parts;
          for (int i = 0; i < ranks(); ++i) parts.push_back(sample_for(op, i, sum(numels), dtype, rank));
          const int me = rank.group.rank();
          const at::Tensor out = empty_like(numels[static_cast<size_t>(me)], dtype, rank);
          reduce_scatter(rank.group, out, parts[static_cast<size_t>(me)], op, numels == even ? Numels() : numels)
              .wait();
          EXPECT_TRUE(same_bits(out, block(reduced(parts, op), numels, me)))
              << to_string(op) << " " << name_of(dtype) << "\n"
              << out;
        }
      }
    }
  });
}

TEST_P(TransportTest, AllReduceGivesTheSameBitsOnEveryRank) {
  run([&](Rank& rank) {
    // Not exact in any order of summation; below and above the size at which transports change their ways.
    for (const int64_t numel : {1000, 100'003}) {
      const at::Tensor inout =
          at::sin(at::arange(numel, rank.options.dtype(at::kFloat)) * (rank.group.rank() + 1)) * 1e3;
      all_reduce(rank.group, inout).wait();
      const at::Tensor all = at::empty({ranks(), numel}, inout.options());
      all_gather(rank.group, all, inout).wait();
      for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(all[i], inout)) << numel;
    }
  });
}

TEST_P(TransportTest, AverageOfSixteenBitFloatsIsTheirAverage) {
  run([&](Rank& rank) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const at::Tensor inout = at::full({4}, 4.0, rank.options.dtype(dtype));
      all_reduce(rank.group, inout, ReduceOp::avg).wait();
      EXPECT_TRUE(same_bits(inout, at::full({4}, 4.0, inout.options()))) << inout;
    }
  });
}

// As torch's own: an element is not a number where one rank's is none, whichever that is.
TEST_P(TransportTest, ExtremesKeepWhatIsNotANumber) {
  run([&](Rank& rank) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
        std::vector<at::Tensor> parts;
        for (int i = 0; i < ranks(); ++i) {
          const double first = i == 0 ? kNan : 1;
          const double last = i + 1 == ranks() ? kNan : -1;
          const double negative = i + 1 == ranks() ? -kNan : 3;
          const double far = i == 0 ? kInfinity : 2;
          const at::Tensor part = at::tensor({first, last, negative, i - 1.5, -i - 0.25, far, -far}, at::kDouble);
          parts.push_back(part.to(rank.options.dtype(dtype)));
        }
        const at::Tensor expected = reduced(parts, op);
        const at::Tensor inout = parts[static_cast<size_t>(rank.group.rank())].clone();
        all_reduce(rank.group, inout, op).wait();
        EXPECT_TRUE(at::allclose(inout, expected, 0, 0, /*equal_nan=*/true)) << to_string(op) << "\n" << inout;
        Numels numels(static_cast<size_t>(ranks()), 0);
        numels.back() = 7;
        const int me = rank.group.rank();
        const at::Tensor out = empty_like(numels[static_cast<size_t>(me)], dtype, rank);
        reduce_scatter(rank.group, out, parts[static_cast<size_t>(me)], op, numels).wait();
        EXPECT_TRUE(at::allclose(out, block(expected, numels, me), 0, 0, true)) << to_string(op) << "\n" << out;
      }
    }
  });
}

TEST_P(TransportTest, AllToAllExchangesEqualBlocks) {
  run([&](Rank& rank) {
    for (const auto dtype : kDtypes) {
      // Element j of the block from rank i to rank k.
      const auto from_to = [&](int i, int k) { return sample(i * 10 + k, 3, dtype, rank.options); };
      std::vector<at::Tensor> gives;
      std::vector<at::Tensor> expected;
      for (int i = 0; i < ranks(); ++i) {
        gives.push_back(from_to(rank.group.rank(), i));
        expected.push_back(from_to(i, rank.group.rank()));
      }
      const at::Tensor out = empty_like(3 * ranks(), dtype, rank);
      all_to_all(rank.group, out, at::cat(gives)).wait();
      EXPECT_TRUE(same_bits(out, at::cat(expected))) << name_of(dtype) << "\n" << out;
    }
  });
}

TEST_P(TransportTest, AllToAllExchangesBlocksOfAnySize) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const auto numel = [](int i, int k) { return int64_t{(i * 2 + k * 3) % 4}; };
    for (const auto dtype : {at::kFloat, at::kBool, at::kComplexDouble, at::kFloat8_e4m3fn}) {
      std::vector<at::Tensor> gives;
      std::vector<at::Tensor> expected;
      Numels in_numels;
      Numels out_numels;
      for (int i = 0; i < ranks(); ++i) {
        in_numels.push_back(numel(me, i));
        out_numels.push_back(numel(i, me));
        gives.push_back(sample(me * 10 + i, numel(me, i), dtype, rank.options));
        expected.push_back(sample(i * 10 + me, numel(i, me), dtype, rank.options));
      }
      const at::Tensor out = empty_like(sum(out_numels), dtype, rank);
      all_to_all(rank.group, out, at::cat(gives), out_numels, in_numels).wait();
      EXPECT_TRUE(same_bits(out, at::cat(expected))) << name_of(dtype) << "\n" << out;
    }
  });
}

TEST_P(TransportTest, AllToAllMayHaveARankThatGivesAndTakesNothing) {
  run([&](Rank& rank) {
    // All others give one element to each other; the last rank has empty tensors.
    const int last = ranks() - 1;
    Numels numels(static_cast<size_t>(ranks()), rank.group.rank() == last ? 0 : 1);
    numels.back() = 0;
    const at::Tensor in = sample(rank.group.rank(), sum(numels), at::kLong, rank.options);
    const at::Tensor out = empty_like(sum(numels), at::kLong, rank);
    all_to_all(rank.group, out, in, numels, numels).wait();
    for (int i = 0; i < static_cast<int>(out.numel()); ++i) {
      EXPECT_EQ(out[i].item<int64_t>(), sample(i, sum(numels), at::kLong)[rank.group.rank()].item<int64_t>());
    }
  });
}

TEST_P(TransportTest, BroadcastTakesEveryDtypeFromEveryRoot) {
  run([&](Rank& rank) {
    for (int root = 0; root < ranks(); ++root) {
      for (const auto dtype : kDtypes) {
        const at::Tensor inout = sample(rank.group.rank(), 6, dtype, rank.options);
        broadcast(rank.group, inout, root).wait();
        EXPECT_TRUE(same_bits(inout, sample(root, 6, dtype))) << root << " " << name_of(dtype) << "\n" << inout;
      }
    }
  });
}

TEST_P(TransportTest, ScatterGivesEachRankItsBlock) {
  run([&](Rank& rank) {
    const Numels even(static_cast<size_t>(ranks()), 2);
    for (int root = 0; root < ranks(); ++root) {
      for (const Numels& numels : {even, uneven(ranks())}) {
        for (const auto dtype : kDtypes) {
          const bool gives = rank.group.rank() == root;
          const at::Tensor whole = joined(ranks(), numels, dtype, rank.options);
          const at::Tensor out = empty_like(numels[static_cast<size_t>(rank.group.rank())], dtype, rank);
          scatter(rank.group, out, gives ? whole : at::Tensor(), root, numels == even ? Numels() : numels).wait();
          EXPECT_TRUE(same_bits(out, sample(rank.group.rank(), out.numel(), dtype))) << name_of(dtype) << "\n" << out;
        }
      }
    }
  });
}

TEST_P(TransportTest, MessagesOfOneTagArriveInTheirOrder) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const int next = (me + 1) % ranks();
    const int previous = (me + ranks() - 1) % ranks();
    std::vector<at::Tensor> outgoing;
    std::vector<Work> sends;
    for (int i = 0; i < 20; ++i) {
      outgoing.push_back(at::full({3}, 100 * me + i, rank.options.dtype(at::kLong)));
      sends.push_back(send(rank.group, outgoing.back(), next));
    }
    for (int i = 0; i < 20; ++i) {
      const at::Tensor message = at::zeros({3}, rank.options.dtype(at::kLong));
      receive(rank.group, message, previous).wait();
      EXPECT_EQ(message[2].item<int64_t>(), 100 * previous + i);
    }
    for (Work& work : sends) work.wait();
  });
}

TEST_P(TransportTest, MessagesAreFoundByTheirTag) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    barrier(rank.group);
    if (ranks() == 3 && me == 2) return;  // the others talk among themselves
    const int other = ranks() == 1 ? 0 : me ^ 1;
    const auto message = [&](int from, int tag) {
      return at::full({2}, 10 * from + tag, rank.options.dtype(at::kInt));
    };
    std::vector<at::Tensor> outgoing;
    std::vector<Work> sends;
    for (const int tag : {3, 0, 7}) {
      outgoing.push_back(message(me, tag));
      sends.push_back(send(rank.group, outgoing.back(), other, tag));
    }
    for (const int tag : {7, 3, 0}) {
      const at::Tensor got = at::zeros({2}, rank.options.dtype(at::kInt));
      receive(rank.group, got, other, tag).wait();
      EXPECT_TRUE(same_bits(got, message(other, tag))) << tag << "\n" << got;
    }
    for (Work& work : sends) work.wait();
  });
}

TEST_P(TransportTest, ReceivesMayBeStartedBeforeTheSendsAndWaitedForInAnyOrder) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const int next = (me + 1) % ranks();
    const int previous = (me + ranks() - 1) % ranks();
    const at::Tensor first = at::zeros({2}, rank.options);
    const at::Tensor second = at::zeros({2}, rank.options);
    Work first_work = receive(rank.group, first, previous);
    Work second_work = receive(rank.group, second, previous);
    const at::Tensor one = at::full({2}, me + 0.25, rank.options);
    const at::Tensor two = at::full({2}, me + 0.5, rank.options);
    Work one_work = send(rank.group, one, next);
    Work two_work = send(rank.group, two, next);
    second_work.wait();
    first_work.wait();
    one_work.wait();
    two_work.wait();
    EXPECT_EQ(first[0].item<float>(), static_cast<float>(previous) + 0.25f);
    EXPECT_EQ(second[0].item<float>(), static_cast<float>(previous) + 0.5f);
  });
}

TEST_P(TransportTest, MessagesCarryEveryDtypeAlsoToTheRankItself) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const int next = (me + 1) % ranks();
    const int previous = (me + ranks() - 1) % ranks();
    for (const auto dtype : kDtypes) {
      const at::Tensor to_self = sample(me + 50, 3, dtype, rank.options);
      const at::Tensor to_next = sample(me, 4, dtype, rank.options);
      Work self_work = send(rank.group, to_self, me, 5);
      Work next_work = send(rank.group, to_next, next, 1);
      const at::Tensor from_self = empty_like(3, dtype, rank);
      const at::Tensor from_previous = empty_like(4, dtype, rank);
      receive(rank.group, from_self, me, 5).wait();
      receive(rank.group, from_previous, previous, 1).wait();
      self_work.wait();
      next_work.wait();
      EXPECT_TRUE(same_bits(from_self, to_self)) << name_of(dtype);
      EXPECT_TRUE(same_bits(from_previous, sample(previous, 4, dtype))) << name_of(dtype);
    }
  });
}

TEST_P(TransportTest, AMessageUnderWayDoesNotDisturbACollective) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const at::Tensor message = at::full({1}, me, rank.options.dtype(at::kLong));
    Work sent = send(rank.group, message, (me + 1) % ranks());
    const Numels numels = uneven(ranks());
    const at::Tensor out = empty_like(sum(numels), at::kLong, rank);
    all_gather_uneven(rank.group, out, sample(me, numels[static_cast<size_t>(me)], at::kLong, rank.options), numels)
        .wait();
    EXPECT_TRUE(same_bits(out, joined(ranks(), numels, at::kLong, rank.options))) << out;
    const int previous = (me + ranks() - 1) % ranks();
    receive(rank.group, message.new_empty({1}), previous).wait();
    sent.wait();
  });
}

// By a clock that all processes of a host share: ranks need not be threads.
TEST_P(TransportTest, BarrierReturnsWhenEveryRankHasCalledIt) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  run([&](Rank& rank) {
    for (int round = 0; round < 20; ++round) {
      // Another one is late each time.
      if (round % ranks() == rank.group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const at::Tensor came = at::full({1}, now(), rank.options.dtype(at::kLong));
      barrier(rank.group);
      const at::Tensor went = at::full({1}, now(), rank.options.dtype(at::kLong));
      all_reduce(rank.group, came, ReduceOp::max).wait();
      all_reduce(rank.group, went, ReduceOp::min).wait();
      EXPECT_LE(came.item<int64_t>(), went.item<int64_t>()) << "round " << round;
    }
  });
}

TEST_P(TransportTest, TextsOfAnyLengthAreGathered) {
  run([&](Rank& rank) {
    const auto text = [](int i) {
      return std::string(static_cast<size_t>(i * 1000), 'a') + '\0' + "\n\xff" + std::to_string(i);
    };
    std::vector<std::string> expected;
    for (int i = 0; i < ranks(); ++i) expected.push_back(text(i));
    EXPECT_EQ(all_gather_text(rank.group, text(rank.group.rank())), expected);
    EXPECT_EQ(all_gather_text(rank.group, ""), std::vector<std::string>(static_cast<size_t>(ranks())));
    std::vector<std::string> only_first(static_cast<size_t>(ranks()));
    only_first.front() = "first";
    EXPECT_EQ(all_gather_text(rank.group, rank.group.rank() == 0 ? "first" : ""), only_first);
  });
}

TEST_P(TransportTest, AgreePassesWhereNoRankFails) {
  run([&](Rank& rank) {
    int calls = 0;
    agree(rank.group, "save", [&] { ++calls; });
    EXPECT_EQ(calls, 1);
  });
}

TEST_P(TransportTest, AgreeThrowsTheSameOnEveryRankWhereOneFails) {
  run([&](Rank& rank) {
    const int bad = ranks() - 1;
    std::string message;
    try {
      agree(rank.group, "save", [&] {
        if (rank.group.rank() == bad) throw std::runtime_error("disk full");
      });
    } catch (const c10::ValueError& error) {
      message = error.what_without_backtrace();
    }
    const std::string n = std::to_string(ranks());
    EXPECT_EQ(message, "save: 1 of " + n + " ranks failed\n  rank " + std::to_string(bad) +
                           ": disk full\n  help: mend what these ranks say; no rank went on");
    barrier(rank.group);  // the group goes on
  });
}

TEST_P(TransportTest, EmptyTensorsPassThroughEverything) {
  run([&](Rank& rank) {
    const at::Tensor none = at::empty({0, 3}, rank.options);
    all_gather(rank.group, none, none.clone()).wait();
    all_gather_uneven(rank.group, none, none.clone(), Numels(static_cast<size_t>(ranks()), 0)).wait();
    all_reduce(rank.group, none).wait();
    reduce_scatter(rank.group, none, none.clone()).wait();
    all_to_all(rank.group, none, none.clone()).wait();
    broadcast(rank.group, none, 0).wait();
    scatter(rank.group, none, none.clone(), 0).wait();
    Work sent = send(rank.group, none, (rank.group.rank() + 1) % ranks());
    receive(rank.group, none, (rank.group.rank() + ranks() - 1) % ranks()).wait();
    sent.wait();
    const at::Tensor one = at::ones({1}, rank.options);
    all_reduce(rank.group, one).wait();
    EXPECT_EQ(one.item<float>(), static_cast<float>(ranks()));
  });
}

TEST_P(TransportTest, TensorsWithoutDimsAreOneElement) {
  run([&](Rank& rank) {
    const at::Tensor scalar = at::scalar_tensor(rank.group.rank() + 1, rank.options.dtype(at::kLong));
    const at::Tensor all = at::empty({ranks()}, scalar.options());
    all_gather(rank.group, all, scalar).wait();
    EXPECT_TRUE(same_bits(all, at::arange(1, ranks() + 1)));
    all_reduce(rank.group, scalar, ReduceOp::max).wait();
    EXPECT_EQ(scalar.item<int64_t>(), ranks());
    EXPECT_EQ(scalar.dim(), 0);
    const at::Tensor complex =
        at::scalar_tensor(c10::complex<double>(1, rank.group.rank()), rank.options.dtype(at::kComplexDouble));
    all_reduce(rank.group, complex).wait();
    EXPECT_EQ(complex.item().toComplexDouble(), c10::complex<double>(ranks(), ranks() * (ranks() - 1) / 2));
  });
}

// What is one row of a larger tensor, say.
TEST_P(TransportTest, OneElementMayHaveAnyStride) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    for (const auto dtype : {at::kFloat, at::kBool, at::kComplexDouble}) {
      const auto one = [&](int value) { return at::full({1, 3}, value, rank.options.dtype(dtype)).select(1, 1); };
      const at::Tensor all = at::zeros({ranks()}, rank.options.dtype(dtype));
      all_gather(rank.group, all, one(me + 1)).wait();
      EXPECT_TRUE(all.equal(at::arange(1, ranks() + 1, rank.options).to(dtype))) << all;
      const at::Tensor first = one(me + 5);
      broadcast(rank.group, first, 0).wait();
      EXPECT_TRUE(first.equal(one(5))) << first;
      const at::Tensor sum = one(1);
      all_reduce(rank.group, sum).wait();
      EXPECT_TRUE(sum.equal(one(ranks()))) << sum;
      if (ranks() == 1) continue;
      const at::Tensor taken = one(0);
      Work sent = send(rank.group, one(me + 1), (me + 1) % ranks());
      receive(rank.group, taken, (me + ranks() - 1) % ranks()).wait();
      sent.wait();
      EXPECT_TRUE(taken.equal(one((me + ranks() - 1) % ranks() + 1))) << taken;
    }
  });
}

TEST_P(TransportTest, ARefusedTensorLeavesTheGroupUsable) {
  run([&](Rank& rank) {
    const at::Tensor columns = at::zeros({4, 4}, rank.options).t();
    EXPECT_THROW(all_reduce(rank.group, columns), c10::ValueError);
    EXPECT_THROW(broadcast(rank.group, columns, 0), c10::ValueError);
    EXPECT_THROW(send(rank.group, columns, 0), c10::ValueError);
    EXPECT_THROW(all_gather(rank.group, at::zeros({16 * ranks()}, rank.options), columns), c10::ValueError);
    EXPECT_THROW(all_reduce(rank.group, at::ones({2}, rank.options.dtype(at::kComplexFloat)).conj()), c10::ValueError);
    const at::Tensor one = at::ones({1}, rank.options);
    all_reduce(rank.group, one).wait();
    EXPECT_EQ(one.item<float>(), static_cast<float>(ranks()));
  });
}

TEST_P(TransportTest, LargeMessagesPassWhole) {
  run([&](Rank& rank) {
    constexpr int64_t kNumel = (1 << 20) + 3;
    const at::Tensor mine = at::arange(kNumel, rank.options.dtype(at::kInt)) * (rank.group.rank() + 1);
    const at::Tensor sum_of_all = mine.clone();
    all_reduce(rank.group, sum_of_all).wait();
    EXPECT_TRUE(same_bits(sum_of_all, at::arange(kNumel, at::kInt) * (ranks() * (ranks() + 1) / 2)));
    const at::Tensor all = at::empty({ranks(), kNumel}, mine.options());
    all_gather(rank.group, all, mine).wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(all[i], at::arange(kNumel, at::kInt) * (i + 1)));
    const at::Tensor exchanged = at::empty_like(all);
    all_to_all(rank.group, exchanged, all).wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_TRUE(same_bits(exchanged[i], all[rank.group.rank()]));
    const at::Tensor back = at::empty_like(mine);
    reduce_scatter(rank.group, back, all).wait();
    EXPECT_TRUE(same_bits(back, all[rank.group.rank()] * ranks()));
    broadcast(rank.group, back, ranks() - 1).wait();
    EXPECT_TRUE(same_bits(back, all[ranks() - 1] * ranks()));
  });
}

// Transports treat small and large tensors differently; ranks may have one of each in one call.
TEST_P(TransportTest, BlocksMayBeSmallForSomeRanksAndLargeForOthers) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    Numels numels(static_cast<size_t>(ranks()), 3);
    numels.back() = 100'003;
    const int64_t mine = numels[static_cast<size_t>(me)];
    for (int round = 0; round < 3; ++round) {
      const at::Tensor all = empty_like(sum(numels), at::kInt, rank);
      const at::Tensor in = at::full({mine}, me + round, rank.options.dtype(at::kInt));
      all_gather_uneven(rank.group, all, in, numels).wait();
      in.fill_(-1);  // what was given may change once the call is over
      for (int i = 0; i < ranks(); ++i) {
        EXPECT_TRUE(at::all(block(all, numels, i) == i + round).item<bool>()) << i;
      }
      const at::Tensor out = empty_like(mine, at::kInt, rank);
      reduce_scatter(rank.group, out, all, ReduceOp::sum, numels).wait();
      EXPECT_TRUE(at::all(out == ranks() * (me + round)).item<bool>());
      // Everybody gives the last rank much and the others little.
      const Numels takes(static_cast<size_t>(ranks()), mine);
      const at::Tensor exchanged = empty_like(mine * ranks(), at::kInt, rank);
      all_to_all(rank.group, exchanged, all, takes, numels).wait();
      EXPECT_TRUE(at::all(exchanged == me + round).item<bool>());
    }
  });
}

TEST_P(TransportTest, ManyCallsInARowKeepTheirOrder) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    for (int i = 0; i < 100; ++i) {
      const at::Tensor total = at::full({1}, me + i, rank.options.dtype(at::kLong));
      all_reduce(rank.group, total).wait();
      ASSERT_EQ(total.item<int64_t>(), ranks() * (ranks() - 1) / 2 + i * ranks());
      const at::Tensor all = at::empty({ranks()}, total.options());
      all_gather(rank.group, all, total + me).wait();
      ASSERT_EQ(all[ranks() - 1].item<int64_t>(), total.item<int64_t>() + ranks() - 1);
      broadcast(rank.group, all, i % ranks()).wait();
      const at::Tensor mine = at::empty({1}, total.options());
      scatter(rank.group, mine, all, i % ranks()).wait();
      ASSERT_EQ(mine.item<int64_t>(), total.item<int64_t>() + me);
    }
  });
}

TEST_P(TransportTest, CallsUnderWayMayBeWaitedForLater) {
  run([&](Rank& rank) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 16; ++i) {
      tensors.push_back(at::full({100}, i, rank.options.dtype(at::kLong)));
      works.push_back(all_reduce(rank.group, tensors.back()));
    }
    for (size_t i = works.size(); i-- > 0;) {
      works[i].wait();
      EXPECT_EQ(tensors[i][99].item<int64_t>(), static_cast<int64_t>(i) * ranks());
    }
    works.front().wait();  // again: nothing to do
  });
}

// A transport may make an uneven gather of messages: they must not be taken for those of the calls under way, nor for
// those of the gather before.
TEST_P(TransportTest, UnevenGathersDoNotDisturbCallsUnderWay) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    std::vector<at::Tensor> totals;
    std::vector<Work> works;
    for (int i = 0; i < 8; ++i) {
      totals.push_back(at::full({1000}, i + me, rank.options.dtype(at::kLong)));
      works.push_back(all_reduce(rank.group, totals.back()));
      Numels numels = uneven(ranks());
      std::rotate(numels.begin(), numels.begin() + i % ranks(), numels.end());
      const at::Tensor out = empty_like(sum(numels), at::kLong, rank);
      all_gather_uneven(rank.group, out, sample(me, numels[static_cast<size_t>(me)], at::kLong, rank.options), numels)
          .wait();
      EXPECT_TRUE(same_bits(out, joined(ranks(), numels, at::kLong, rank.options))) << out;
    }
    for (size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_EQ(totals[i][999].item<int64_t>(), ranks() * (ranks() - 1) / 2 + static_cast<int64_t>(i) * ranks());
    }
  });
}

TEST_P(TransportTest, AllGatherMayReadItsOwnBlockOfTheOutput) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const at::Tensor out = at::zeros({ranks(), 4}, rank.options.dtype(at::kLong));
    out[me].fill_(me + 1);
    all_gather(rank.group, out, out[me]).wait();
    for (int i = 0; i < ranks(); ++i) EXPECT_EQ(out[i].sum().item<int64_t>(), 4 * (i + 1));
  });
}

TEST_P(TransportTest, ReduceScatterMayWriteItsOwnBlockOfTheInput) {
  run([&](Rank& rank) {
    const int me = rank.group.rank();
    const at::Tensor in = at::ones({ranks(), 4}, rank.options.dtype(at::kLong)) * (me + 1);
    reduce_scatter(rank.group, in[me], in).wait();
    EXPECT_EQ(in[me].sum().item<int64_t>(), 4 * ranks() * (ranks() + 1) / 2);
  });
}

TEST_P(TransportTest, AutogradLearnsThatATensorWasWritten) {
  run([&](Rank& rank) {
    const at::Tensor weight = at::ones({2}, rank.options).requires_grad_();
    const at::Tensor saved = at::ones({2}, rank.options);
    const at::Tensor loss = (weight * saved).sum();
    const auto version = saved._version();
    all_reduce(rank.group, saved).wait();
    EXPECT_GT(saved._version(), version);
    EXPECT_THROW(loss.backward(), c10::Error);  // one of the variables was modified by an inplace operation

    // A parameter itself can be sent; no graph grows from it.
    const at::Tensor all = at::empty({2 * ranks()}, rank.options);
    all_gather(rank.group, all, weight).wait();
    broadcast(rank.group, weight, 0).wait();
    EXPECT_FALSE(all.requires_grad());
    EXPECT_TRUE(weight.is_leaf());
  });
}

TEST_P(TransportTest, InferenceTensorsAreTaken) {
  run([&](Rank& rank) {
    const c10::InferenceMode inference;
    const at::Tensor total = at::ones({3}, rank.options);
    all_reduce(rank.group, total).wait();
    EXPECT_EQ(total[0].item<float>(), static_cast<float>(ranks()));
  });
}

}  // namespace
}  // namespace sherd::testing
