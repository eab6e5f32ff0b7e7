// What the ranks of a group are told when one of them does something else, fails, or does not come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <latch>
#include <regex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/errors.h"
#include "comm/hierarchical.h"
#include "comm/world_state.h"
#include "error/rank_errors.h"
#include "sherd/collectives.h"
#include "sherd/shared_memory.h"
#include "sherd/world.h"

namespace sherd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;

const std::string kMissingHelp =
    "  help: see what these ranks do instead; SHERD_TIMEOUT=600 waits longer, SHERD_CHECK=1 compares the calls";
const std::string kSameCallsHelp = "  help: every rank of a group makes the same calls in the same order";

// What the transport said differs from case to case ("Connection closed by peer [127.0.0.1]:40218").
std::vector<std::string> without_cause(std::vector<std::string> texts) {
  for (std::string& text : texts)
    text = std::regex_replace(text, std::regex("\n  cause: [^\n]+\n"), "\n  cause: ...\n");
  return texts;
}

void reduce_one(World& world) { all_reduce(world.group(), at::ones({4})).wait(); }

// The transports that compare what the ranks call.
class DifferentCallsTest : public ::testing::TestWithParam<WorldOptions> {
 protected:
  std::vector<std::string> errors(int n, const std::function<void(World&)>& body) {
    return errors_of_ranks(n, body, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Threads, DifferentCallsTest, ::testing::Values(WorldOptions{}));
INSTANTIATE_TEST_SUITE_P(Shm, DifferentCallsTest, ::testing::Values(WorldOptions{.backend = "shm"}));
INSTANTIATE_TEST_SUITE_P(CheckedGloo, DifferentCallsTest,
                         ::testing::Values(WorldOptions{.backend = "gloo", .check = true}));

TEST_P(DifferentCallsTest, DifferentCollectives) {
  const auto texts = errors(3, [](World& world) {
    if (world.rank() == 1) {
      barrier(world.group());
    } else {
      reduce_one(world);
    }
  });
  const std::string facts =
      "  ranks 0, 2: all_reduce(sum) f32[4]\n"
      "  rank 1: barrier\n" +
      kSameCallsHelp;
  EXPECT_THAT(texts, ElementsAre("all_reduce: ranks call different things\n" + facts,
                                 "barrier: ranks call different things\n" + facts,
                                 "all_reduce: ranks call different things\n" + facts));
}

TEST_P(DifferentCallsTest, DifferentShapes) {
  const auto texts = errors(3, [](World& world) { all_reduce(world.group(), at::ones({2, world.rank() + 1})).wait(); });
  EXPECT_THAT(texts, Each("all_reduce: ranks call different things\n"
                          "  rank 0: all_reduce(sum) f32[2, 1]\n"
                          "  rank 1: all_reduce(sum) f32[2, 2]\n"
                          "  rank 2: all_reduce(sum) f32[2, 3]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, AnEmptyTensorAmongOthers) {
  const auto texts = errors(2, [](World& world) { all_reduce(world.group(), at::ones({world.rank()})).wait(); });
  EXPECT_THAT(texts, Each("all_reduce: ranks call different things\n"
                          "  rank 0: all_reduce(sum) f32[0]\n"
                          "  rank 1: all_reduce(sum) f32[1]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, DifferentDtypesOfOneSize) {
  const auto texts = errors(2, [](World& world) {
    const auto dtype = world.rank() == 0 ? at::kFloat : at::kInt;
    all_gather(world.group(), at::zeros({8}, dtype), at::zeros({4}, dtype)).wait();
  });
  EXPECT_THAT(texts, Each("all_gather: ranks call different things\n"
                          "  rank 0: all_gather f32[4]\n"
                          "  rank 1: all_gather i32[4]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, DifferentReductions) {
  const auto texts = errors(2, [](World& world) {
    all_reduce(world.group(), at::ones({4}), world.rank() == 0 ? ReduceOp::avg : ReduceOp::max).wait();
  });
  EXPECT_THAT(texts, Each("all_reduce: ranks call different things\n"
                          "  rank 0: all_reduce(avg) f32[4]\n"
                          "  rank 1: all_reduce(max) f32[4]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, DifferentRoots) {
  const auto texts = errors(2, [](World& world) { broadcast(world.group(), at::ones({4}), world.rank()).wait(); });
  EXPECT_THAT(texts, Each("broadcast: ranks call different things\n"
                          "  rank 0: broadcast root 0 f32[4]\n"
                          "  rank 1: broadcast root 1 f32[4]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, BlocksThatDoNotFit) {
  const auto texts = errors(2, [](World& world) {
    // Rank 0 gives rank 1 three elements, which takes two.
    const std::vector<int64_t> gives = world.rank() == 0 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{2, 2};
    const std::vector<int64_t> takes = world.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 2};
    const auto sum = [](const std::vector<int64_t>& numels) { return numels[0] + numels[1]; };
    all_to_all(world.group(), at::zeros({sum(takes)}), at::zeros({sum(gives)}), takes, gives).wait();
  });
  EXPECT_THAT(texts, Each("all_to_all: ranks call different things\n"
                          "  rank 0: all_to_all f32 blocks of [1, 3]\n"
                          "  rank 1: all_to_all f32 blocks of [2, 2]\n" +
                          kSameCallsHelp));
}

TEST_P(DifferentCallsTest, WhatATransportIsComposedOfDoesNotShow) {
  const auto texts = errors(2, [](World& world) {
    if (world.rank() == 0) {
      scatter(world.group(), at::zeros({2}), at::zeros({3}), 0, {2, 1}).wait();
    } else {
      reduce_scatter(world.group(), at::zeros({1}), at::zeros({2})).wait();
    }
  });
  const std::string facts =
      "  rank 0: scatter root 0 f32 blocks of [2, 1]\n"
      "  rank 1: reduce_scatter(sum) f32 blocks of [1, 1]\n" +
      kSameCallsHelp;
  EXPECT_THAT(texts, ElementsAre("scatter: ranks call different things\n" + facts,
                                 "reduce_scatter: ranks call different things\n" + facts));
}

TEST_P(DifferentCallsTest, UnevenBlocksThatRanksSeeDifferently) {
  const auto texts = errors(2, [](World& world) {
    const std::vector<int64_t> numels = world.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1};
    all_gather_uneven(world.group(), at::zeros({3}), at::zeros({1}), numels).wait();
  });
  EXPECT_THAT(texts, Each("all_gather: ranks call different things\n"
                          "  rank 0: all_gather f32[1] into blocks of [1, 2]\n"
                          "  rank 1: all_gather f32[1] into blocks of [2, 1]\n" +
                          kSameCallsHelp));
}

TEST(RankFailureTest, ARankThatNeverCallsIsNamed) {
  std::latch others_are_done(2);
  const auto texts = errors_of_ranks(3,
                                     [&](World& world) {
                                       if (world.rank() == 2) return others_are_done.wait();
                                       try {
                                         reduce_one(world);
                                       } catch (...) {
                                         others_are_done.count_down();
                                         throw;
                                       }
                                     },
                                     {.timeout = milliseconds(150)});
  const std::string text =
      "all_reduce: rank 2 never came\n"
      "  waited: 0.15 s\n"
      "  group: ranks 0-2\n" +
      kMissingHelp;
  EXPECT_THAT(texts, ElementsAre(text, text, ""));
}

// The transports that are told by a Link what became of a rank.
class LinkedFailureTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gloo, LinkedFailureTest, ::testing::Values("gloo"));
INSTANTIATE_TEST_SUITE_P(Shm, LinkedFailureTest, ::testing::Values("shm"));

TEST_P(LinkedFailureTest, ARankThatNeverCallsIsNamed) {
  std::latch others_are_done(2);
  const auto texts = without_cause(errors_of_ranks(3,
                                                   [&](World& world) {
                                                     barrier(world.group());
                                                     if (world.rank() == 2) return others_are_done.wait();
                                                     try {
                                                       reduce_one(world);
                                                     } catch (...) {
                                                       others_are_done.count_down();
                                                       throw;
                                                     }
                                                   },
                                                   {.backend = GetParam(), .timeout = milliseconds(500)}));
  const std::string text =
      "all_reduce: rank 2 never came\n"
      "  group: ranks 0-2\n"
      "  cause: ...\n" +
      kMissingHelp;
  EXPECT_THAT(texts, ElementsAre(text, text, ""));
}

TEST(RankFailureTest, AMessageThatIsNeverSentNamesItsSender) {
  std::latch receiver_is_done(1);
  const auto texts = errors_of_ranks(2,
                                     [&](World& world) {
                                       if (world.rank() == 1) return receiver_is_done.wait();
                                       try {
                                         receive(world.group(), at::zeros({1}), 1).wait();
                                       } catch (...) {
                                         receiver_is_done.count_down();
                                         throw;
                                       }
                                     },
                                     {.timeout = milliseconds(150)});
  EXPECT_EQ(texts[0],
            "receive: rank 1 never came\n"
            "  waited: 0.15 s\n"
            "  group: ranks 0, 1\n" +
                kMissingHelp);
}

TEST(RankFailureTest, ARankThatHasEndedIsNotWaitedFor) {
  const auto texts = errors_of_ranks(3, [](World& world) {
    if (world.rank() == 1) return;
    reduce_one(world);
  });
  const std::string text =
      "all_reduce: rank 1 has already ended\n"
      "  group: ranks 0-2\n" +
      kSameCallsHelp;
  EXPECT_THAT(texts, ElementsAre(text, "", text));
  EXPECT_EQ(errors_of_ranks(2,
                            [](World& world) {
                              if (world.rank() == 0) receive(world.group(), at::zeros({1}), 1).wait();
                            })[0],
            "receive: rank 1 has already ended\n"
            "  group: ranks 0, 1\n" +
                kSameCallsHelp);
}

TEST_P(LinkedFailureTest, ARankThatHasEndedIsNamed) {
  const auto texts = without_cause(errors_of_ranks(3,
                                                   [](World& world) {
                                                     barrier(world.group());
                                                     if (world.rank() == 1) return;
                                                     reduce_one(world);
                                                   },
                                                   {.backend = GetParam()}));
  const std::string text =
      "all_reduce: rank 1 has already ended\n"
      "  group: ranks 0-2\n"
      "  cause: ...\n" +
      kSameCallsHelp;
  EXPECT_THAT(texts, ElementsAre(text, "", text));
}

class FailureTest : public ::testing::TestWithParam<WorldOptions> {};
INSTANTIATE_TEST_SUITE_P(Threads, FailureTest, ::testing::Values(WorldOptions{}));
INSTANTIATE_TEST_SUITE_P(Shm, FailureTest, ::testing::Values(WorldOptions{.backend = "shm"}));
INSTANTIATE_TEST_SUITE_P(Gloo, FailureTest, ::testing::Values(WorldOptions{.backend = "gloo"}));
INSTANTIATE_TEST_SUITE_P(CheckedGloo, FailureTest, ::testing::Values(WorldOptions{.backend = "gloo", .check = true}));

TEST_P(FailureTest, TheOthersHearWhatARankThatFailsAloneSays) {
  std::vector<std::string> texts(4);
  try {
    spawn(
        4,
        [&](World& world) {
          barrier(world.group());
          if (world.rank() == 1) throw std::out_of_range("index 7 is out of range");
          try {
            reduce_one(world);
          } catch (const c10::DistBackendError& error) {
            texts[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
            throw;
          }
        },
        GetParam());
    ADD_FAILURE() << "spawn() must rethrow";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "index 7 is out of range");
  }
  const std::string text =
      "all_reduce: rank 1 failed\n"
      "  rank 1: index 7 is out of range\n"
      "  help: mend what rank 1 says; this rank stopped because of it";
  EXPECT_THAT(texts, ElementsAre(text, "", text, text));
}

TEST_P(FailureTest, AFailureReachesGroupsThatAreYetToBeMade) {
  std::string text;
  EXPECT_THROW(spawn(
                   3,
                   [&](World& world) {
                     if (world.rank() == 0) throw std::runtime_error("no licence");
                     if (world.rank() == 2) return;
                     try {
                       barrier(world.group({0, 1}));
                     } catch (const c10::DistBackendError& error) {
                       text = error.what_without_backtrace();
                     }
                   },
                   [] {
                     WorldOptions options = GetParam();
                     options.timeout = milliseconds(1000);
                     return options;
                   }()),
               std::runtime_error);
  EXPECT_EQ(text,
            "barrier: rank 0 failed\n"
            "  rank 0: no licence\n"
            "  help: mend what rank 0 says; this rank stopped because of it");
}

TEST(RankFailureTest, ARankThatFailedCanCallNothingMore) {
  spawn(1, [](World& world) {
    const Group group = world.group();
    world.fail("out of coffee");
    EXPECT_EQ(comm_error([&] { barrier(group); }),
              "barrier: this rank left the group when it failed\n"
              "  group: rank 0\n"
              "  help: start the program again");
  });
}

// The others do not wait until the timeout, and whoever does not wait for the task hears of it in the end.
TEST_P(FailureTest, AFailureInTheBackgroundReachesTheOthersAtOnce) {
  std::vector<std::string> texts(2);
  const auto began = std::chrono::steady_clock::now();
  try {
    spawn(
        2,
        [&](World& world) {
          const Group beside = world.group().in_background();
          barrier(beside);
          if (world.rank() == 1) {
            world.state()->background().start([] { throw std::out_of_range("index 7 is out of range"); });
            return;
          }
          try {
            barrier(beside);
          } catch (const c10::DistBackendError& error) {
            texts[0] = error.what_without_backtrace();
            throw;
          }
        },
        GetParam());
    ADD_FAILURE() << "spawn() must rethrow";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "index 7 is out of range");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_EQ(texts[0],
            "barrier: rank 1 failed\n"
            "  rank 1: index 7 is out of range\n"
            "  help: mend what rank 1 says; this rank stopped because of it");
}

// Those that it waits for there do not come any more.
TEST(RankFailureTest, ARankThatFailsEndsWhatItHasUnderWayInTheBackground) {
  for (const bool joined : {false, true}) {
    for (const char* backend : {"threads", "shm", "gloo"}) {
      if (joined && backend == std::string("gloo")) continue;  // torch's calls end by themselves alone
      std::latch first_has_ended(1);
      const auto began = std::chrono::steady_clock::now();
      spawn(2,
            [&](World& world) {
              const Group beside = world.group().in_background();
              if (joined) barrier(beside);
              if (world.rank() == 1) return first_has_ended.wait();
              const auto task = world.state()->background().start([&] { barrier(beside); });
              std::this_thread::sleep_for(milliseconds(100));
              world.fail("out of coffee");
              EXPECT_THROW(task->wait(), c10::DistBackendError);
              first_has_ended.count_down();
            },
            {.backend = backend, .timeout = std::chrono::seconds(20)});
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10)) << backend << joined;
    }
  }
}

// Arguments that are refused are refused on every rank, and a program may go on.
TEST(RankFailureTest, WhatIsRefusedInTheBackgroundEndsNobody) {
  spawn(2, [](World& world) {
    const auto refused = world.state()->background().start(
        [] { detail::throw_value_error(ErrorText("move", "it is too large").help("a smaller one")); });
    EXPECT_EQ(value_error([&] { refused->wait(); }), "move: it is too large\n  help: a smaller one");
    barrier(world.group());
  });
}

TEST(RankFailureTest, WhatTheBackgroundToldIsForgotten) {
  spawn(1, [](World& world) {
    detail::Background& background = world.state()->background();
    std::weak_ptr<detail::BackgroundTask> last;
    for (int i = 0; i < 3; ++i) {
      const auto refused = background.start(
          [] { detail::throw_value_error(ErrorText("move", "it is too large").help("a smaller one")); });
      EXPECT_THROW(refused->wait(), c10::ValueError);
      background.drain();
      EXPECT_TRUE(last.expired());
      last = refused;
    }
  });
}

TEST(RankFailureTest, TheBackgroundStartsAgainAfterItsEnd) {
  spawn(1, [](World& world) {
    detail::Background& background = world.state()->background();
    int runs = 0;
    const auto run = [&] { background.start([&] { ++runs; })->wait(); };
    run();
    background.stop();
    run();
    background.end();
    run();
    world.fail("out of coffee");
    run();
    EXPECT_EQ(runs, 4);
  });
}

TEST(RankFailureTest, SpawnThrowsWhatTheFirstRankToFailThrewHoweverLate) {
  std::latch other_has_thrown(1);
  const auto run = [&](World& world) {
    if (world.rank() == 0) {
      world.fail("no licence");
      other_has_thrown.wait();
      std::this_thread::sleep_for(milliseconds(50));  // the other's exception reaches spawn
      throw std::out_of_range("no licence");
    }
    try {
      barrier(world.group());
    } catch (...) {
      other_has_thrown.count_down();
      throw;
    }
  };
  EXPECT_THROW(spawn(2, run), std::out_of_range);
}

TEST(RankFailureTest, AMessageThatDoesNotFitIsRefused) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    if (world.rank() == 0) {
      send(world.group(), at::zeros({2, 2}), 1).wait();
    } else {
      receive(world.group(), at::zeros({4}, at::kInt), 0).wait();
    }
  });
  EXPECT_THAT(texts, ElementsAre("",
                                 "receive: the tensor sent does not fit the tensor given\n"
                                 "  sent: f32[2, 2]\n"
                                 "  given: i32[4]\n"
                                 "  help: receive into a tensor of the sender's dtype and size"));
}

TEST(RankFailureTest, ARankThatCannotRunACallSaysWhy) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    // Rank 1 cannot copy what rank 0 gives: there is no data.
    const auto options = at::TensorOptions(world.rank() == 0 ? at::kMeta : at::kCPU);
    std::vector<at::Tensor> in{at::empty({1}, options)};
    std::vector<std::vector<at::Tensor>> out{{at::empty({1}, options), at::empty({1}, options)}};
    world.group().backend(c10::DeviceType::CPU)->allgather(out, in);
  });
  EXPECT_THAT(texts, ElementsAre("all_gather: rank 1 failed\n"
                                 "  rank 1: Cannot copy out of meta tensor; no data!\n"
                                 "  help: mend what rank 1 says; this rank stopped because of it",
                                 "all_gather: this rank cannot go on\n"
                                 "  call: all_gather f32[1]\n"
                                 "  cause: Cannot copy out of meta tensor; no data!\n"
                                 "  help: mend the cause; the other ranks stopped because of it"));
}

// Mistakes of those who call the c10d::Backend themselves.
TEST(C10dErrorTest, ListsThatCannotBe) {
  const World world = fake_world(0, 2);
  const auto backend = world.group().backend(c10::DeviceType::CPU);
  std::vector<at::Tensor> two{at::zeros({1}), at::zeros({1})};
  EXPECT_EQ(value_error([&] { backend->allreduce(two); }),
            "all_reduce: takes one tensor per call\n"
            "  given: 2\n"
            "  help: call it once for each tensor");
  at::Tensor three = at::zeros({3});
  at::Tensor four = at::zeros({4});
  EXPECT_EQ(value_error([&] { backend->_reduce_scatter_base(four, three); }),
            "reduce_scatter: the tensor does not divide into one equal block per rank\n"
            "  elements: 3\n"
            "  ranks: 2\n"
            "  help: pass the size of each block");
  std::vector<int64_t> rows{1, 2};
  EXPECT_EQ(value_error([&] { backend->alltoall_base(four, four, rows, rows); }),
            "all_to_all: the blocks do not add up to the tensor\n"
            "  blocks: [1, 2]\n"
            "  tensor: 4 rows\n"
            "  help: give one size per rank; their sum is the size of dim 0");
  std::vector<int64_t> too_many{3, 3};
  EXPECT_EQ(value_error([&] { backend->alltoall_base(four, four, too_many, too_many); }),
            "all_to_all: the blocks do not add up to the tensor\n"
            "  blocks: [3, 3]\n"
            "  tensor: 4 rows\n"
            "  help: give one size per rank; their sum is the size of dim 0");
  std::vector<at::Tensor> one{at::zeros({1})};
  EXPECT_EQ(value_error([&] {
              c10d::AllreduceOptions options;
              options.reduceOp.op_ = c10d::ReduceOp::PREMUL_SUM;
              backend->allreduce(one, options);
            }),
            "reduce: this transport does not know the reduction\n"
            "  reduction: number 8 of c10d::ReduceOp\n"
            "  help: sum, avg, product, min, max, band, bor or bxor");
}

// Blocks of which one is given and taken, and which do not lie in one piece.
TEST(C10dTest, BlocksInPlaceNeedNotBeContiguous) {
  spawn(2,
        [](World& world) {
          const auto backend = world.group().backend(c10::DeviceType::CPU);
          const auto columns = [](int64_t value) { return at::full({3, 2}, value, at::kLong).unbind(1); };
          std::vector<at::Tensor> gives = columns(world.rank());
          std::vector<at::Tensor> takes = columns(-1);
          takes[0] = gives[0];
          backend->alltoall(takes, gives, {})->wait();
          for (int i = 0; i < 2; ++i) EXPECT_TRUE(takes[static_cast<size_t>(i)].eq(i).all().item<bool>());
          std::vector<std::vector<at::Tensor>> blocks;
          if (world.rank() == 0) blocks.push_back(columns(7));
          std::vector<at::Tensor> out{world.rank() == 0 ? blocks[0][0] : columns(-1)[0]};
          backend->scatter(out, blocks, c10d::ScatterOptions{.rootRank = 0})->wait();
          EXPECT_TRUE(out[0].eq(7).all().item<bool>());
          // A message after one that was received into such a tensor is the next one.
          for (const int64_t value : {1, 2}) {
            std::vector<at::Tensor> message{world.rank() == 0 ? at::full({3}, value, at::kLong) : columns(0)[0]};
            if (world.rank() == 0) {
              backend->send(message, 1, 0)->wait();
            } else {
              backend->recv(message, 0, 0)->wait();
              EXPECT_TRUE(message[0].eq(value).all().item<bool>());
            }
          }
        },
        {.backend = "shm"});
}

// Of a program that set c10d up by itself.
TEST(C10dErrorTest, SharedMemory) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto join = [&](int rank) {
    return make_shared_memory_backend({.store = store, .rank = rank, .size = 2, .timeout = milliseconds(300)});
  };
  c10::intrusive_ptr<c10d::Backend> other;
  std::thread joining([&] { other = join(1); });
  const auto backend = join(0);
  joining.join();
  std::vector<at::Tensor> nowhere{at::empty({4}, at::kMeta)};
  EXPECT_EQ(value_error([&] { backend->allreduce(nowhere); }),
            "all_reduce: shared memory is for tensors on the CPU\n"
            "  device: meta\n"
            "  help: tensor.cpu(), or a group with a backend for the device: \"cpu:shm,cuda:nccl\"");
  std::vector<at::Tensor> tensors{at::ones({4})};
  EXPECT_EQ(comm_error([&] { backend->allreduce(tensors); }),
            "all_reduce: rank 1 never came\n"
            "  waited: 0.3 s\n"
            "  group: ranks 0, 1\n" +
                kMissingHelp);
  const std::string broken =
      ": the group broke in an earlier call\n"
      "  group: ranks 0, 1\n"
      "  help: start the program again";
  EXPECT_EQ(comm_error([&] { backend->allreduce(tensors); }), "all_reduce" + broken);
  EXPECT_EQ(comm_error([&] { backend->send(tensors, 1, 0); }), "send" + broken);
  EXPECT_EQ(comm_error([&] { backend->recv(tensors, 1, 0)->wait(); }), "receive" + broken);
  // This one had come to the first call, late as the other was; at the next one the other finds that it has left.
  other->allreduce(tensors);
  EXPECT_EQ(
      std::regex_replace(comm_error([&] { other->allreduce(tensors); }), std::regex("process [0-9]+"), "process N"),
      "all_reduce: rank 0 is gone\n"
      "  group: ranks 0, 1\n"
      "  cause: shared memory closed by peer, process N\n"
      "  help: look at the output of these ranks");
}

TEST(C10dErrorTest, SharedMemoryOfRanksOnTwoHosts) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->set("host/0", std::vector<uint8_t>{'e', 'l', 's', 'e'});
  EXPECT_EQ(comm_error([&] { make_shared_memory_backend({.store = store, .rank = 1, .size = 2}); }),
            "shm: the ranks of the group are not on one host\n"
            "  group: ranks 0, 1\n"
            "  help: torch.distributed.init_process_group(\"gloo\")");
}

// Two hosts of one rank each, made up.
TEST(C10dErrorTest, AGroupOverHostsThatBroke) {
  spawn(2, [](World& world) {
    const Group all = world.group();
    const Group inside = world.group({world.rank()});
    const c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<detail::HierarchicalBackend>(
        world.rank(), detail::HierarchicalParts{.hosts = detail::Hosts::of({"a", "b"}),
                                                .ranks = all.ranks(),
                                                .inside = inside.backend(c10::DeviceType::CPU),
                                                .between = all.backend(c10::DeviceType::CPU)});
    backend->abort();
    const std::string broken =
        ": the group broke in an earlier call\n"
        "  group: ranks 0, 1\n"
        "  help: start the program again";
    std::vector<at::Tensor> tensors{at::ones({4})};
    const int other = 1 - world.rank();
    EXPECT_EQ(comm_error([&] { backend->allreduce(tensors); }), "all_reduce" + broken);
    EXPECT_EQ(comm_error([&] { backend->send(tensors, other, 0); }), "send" + broken);
    EXPECT_EQ(comm_error([&] { backend->recv(tensors, other, 0); }), "receive" + broken);
  });
}

TEST(C10dErrorTest, ListsThatAreNotOnePerRank) {
  const auto texts = errors_of_ranks(2, [](World& world) {
    std::vector<at::Tensor> in{at::zeros({1})};
    std::vector<std::vector<at::Tensor>> out{{at::zeros({1})}};
    world.group().backend(c10::DeviceType::CPU)->allgather(out, in);
  });
  EXPECT_THAT(texts, Each("all_gather: needs one block per rank of the group\n"
                          "  call: all_gather f32[1]\n"
                          "  group: ranks 0, 1\n"
                          "  help: pass as many tensors as the group has ranks"));
}

TEST(C10dErrorTest, CallsOfC10dAreComparedToo) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    const auto texts = errors_of_ranks(2,
                                       [](World& world) {
                                         std::vector<at::Tensor> tensors{at::zeros({world.rank() + 1})};
                                         world.group().backend(c10::DeviceType::CPU)->allreduce(tensors);
                                       },
                                       {.backend = backend, .check = true});
    EXPECT_THAT(texts, Each("all_reduce: ranks call different things\n"
                            "  rank 0: all_reduce(sum) f32[1]\n"
                            "  rank 1: all_reduce(sum) f32[2]\n" +
                            kSameCallsHelp));
  }
}

}  // namespace
}  // namespace sherd::testing
