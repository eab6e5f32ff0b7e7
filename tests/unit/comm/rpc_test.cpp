#include "sherd/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "comm/rpc.h"
#include "comm/rpc_message.h"
#include "sherd/collectives.h"

namespace sherd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

size_t count_threads() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// A thread that has been joined may be listed for a moment longer.
size_t count_threads_until(size_t wanted) {
  for (int i = 0; i < 200 && count_threads() != wanted; ++i) std::this_thread::sleep_for(milliseconds(10));
  return count_threads();
}

TEST(RpcTest, EveryRankFetchesTheTensorsOfEveryOther) {
  for (int n = 1; n <= 4; ++n) {
    spawn(n, [n](World& world) {
      init_rpc(world);
      std::vector<at::Tensor> mine;
      for (int i = 0; i < world.rank(); ++i) mine.push_back(at::full({3, i + 1}, 10 * world.rank() + i));
      const auto shared = share_tensors(world.group(), world, mine);
      ASSERT_EQ(shared.size(), static_cast<size_t>(n));
      for (int owner = 0; owner < n; ++owner) {
        const auto& theirs = shared[static_cast<size_t>(owner)];
        ASSERT_EQ(theirs.size(), static_cast<size_t>(owner));
        for (int i = 0; i < owner; ++i) {
          EXPECT_EQ(theirs[static_cast<size_t>(i)].owner(), owner);
          EXPECT_TRUE(at::equal(theirs[static_cast<size_t>(i)].to_here(), at::full({3, i + 1}, 10 * owner + i)));
        }
      }
      shutdown_rpc(world);
    });
  }
}

TEST(RpcTest, NamesAreThoseGivenOrTheRanksNumbers) {
  spawn(3, [](World& world) {
    EXPECT_FALSE(has_rpc(world));
    init_rpc(world, {.name = world.rank() == 1 ? "trainer-1_b" : ""});
    EXPECT_TRUE(has_rpc(world));
    EXPECT_THAT(rpc_names(world), ElementsAre("worker0", "trainer-1_b", "worker2"));
    shutdown_rpc(world);
    EXPECT_FALSE(has_rpc(world));
  });
}

TEST(RpcTest, WhatIsFetchedIsACopyOfWhatTheOwnerHasNow) {
  spawn(2, [](World& world) {
    init_rpc(world);
    const at::Tensor mine = at::zeros({4});
    const auto shared = share_tensors(world.group(), world, {mine});
    const int other = 1 - world.rank();
    mine.fill_(world.rank() + 1);
    barrier(world.group());
    for (const int owner : {0, 1}) {
      const at::Tensor first = shared[static_cast<size_t>(owner)][0].to_here();
      EXPECT_TRUE(at::equal(first, at::full({4}, owner + 1.0F)));
      first.fill_(100);  // the fetcher's own
    }
    EXPECT_TRUE(at::equal(shared[static_cast<size_t>(other)][0].to_here(), at::full({4}, other + 1.0F)));
    EXPECT_TRUE(at::equal(mine, at::full({4}, world.rank() + 1.0F)));
    shutdown_rpc(world);
  });
}

TEST(RpcTest, TensorsOfEveryKindCome) {
  const at::Tensor base = at::arange(48, at::kFloat).view({6, 8});
  std::vector<at::Tensor> tensors = {
      base,
      base.t(),                                           // strides
      base.narrow(0, 2, 3),                               // part of a storage
      base.slice(1, 0, 8, 3),                             // with holes
      at::scalar_tensor(7, at::kDouble),                  // no dim
      at::empty({0}),                                     // nothing
      at::empty({3, 0, 2}, at::kLong),                    // nothing, with sizes
      at::ones({5}, at::kBool),                           //
      at::view_as_complex(at::arange(6.0).view({3, 2})),  //
      at::conj(at::view_as_complex(at::arange(4.0).view({2, 2}))),
      at::arange(4).to(at::kUInt16),
      at::arange(4).to(at::kBFloat16),
      at::arange(4).to(at::kFloat8_e4m3fn),
      at::full({2}, 3.5F).requires_grad_(),
      at::full({2}, 3.5F).expand({4, 2}),
      at::arange(300'000, at::kLong),  // more than a socket takes at once
  };
  spawn(2, [&](World& world) {
    init_rpc(world);
    const auto shared = share_tensors(world.group(), world, world.rank() == 0 ? tensors : std::vector<at::Tensor>());
    ASSERT_EQ(shared[0].size(), tensors.size());
    EXPECT_TRUE(shared[1].empty());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor got = shared[0][i].to_here();
      EXPECT_EQ(got.scalar_type(), tensors[i].scalar_type()) << i;
      EXPECT_EQ(got.sizes(), tensors[i].sizes()) << i;
      EXPECT_TRUE(got.is_contiguous() && !got.requires_grad()) << i;
      EXPECT_FALSE(got.numel() > 0 && got.is_alias_of(tensors[i])) << i;
      const auto bytes = [](const at::Tensor& x) {
        return x.detach().resolve_conj().contiguous().view({-1}).view(at::kByte);
      };
      EXPECT_TRUE(at::equal(bytes(got), bytes(tensors[i]))) << i;
    }
    shutdown_rpc(world);
  });
}

TEST(RpcTest, TensorsOfAGpuComeToTheCpuWithWhatItsStreamsStillCompute) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  spawn(2, [](World& world) {
    init_rpc(world);
    at::Tensor sum = at::zeros({1 << 20}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    const auto shared = share_tensors(world.group(), world, {sum, sum.view({1 << 10, 1 << 10}).t()});
    for (int i = 0; i < 1000; ++i) sum += world.rank() + 1;
    barrier(world.group());
    const int other = 1 - world.rank();
    for (const RemoteTensor& theirs : shared[static_cast<size_t>(other)]) {
      const at::Tensor got = theirs.to_here();
      EXPECT_TRUE(got.device().is_cpu());
      EXPECT_TRUE(at::equal(got, at::full_like(got, 1000 * (other + 1))));
    }
    shutdown_rpc(world);
  });
}

TEST(RpcTest, SubgroupsShareAmongThemselves) {
  spawn(4, [](World& world) {
    init_rpc(world);
    const bool odd = world.rank() % 2 == 1;
    const Group group = odd ? world.group({3, 1}) : world.group({0, 2});
    const auto shared = share_tensors(group, world, {at::full({2}, world.rank())});
    ASSERT_EQ(shared.size(), 2u);
    for (size_t place = 0; place < 2; ++place) {
      ASSERT_EQ(shared[place].size(), 1u);
      EXPECT_EQ(shared[place][0].owner(), group.ranks()[place]);
      EXPECT_TRUE(at::equal(shared[place][0].to_here(), at::full({2}, group.ranks()[place])));
    }
    shutdown_rpc(world);
  });
}

TEST(RpcTest, ManyFetchesAtOnceGetEachItsOwn) {
  spawn(3, [](World& world) {
    init_rpc(world, {.threads = 2});
    std::vector<at::Tensor> mine;
    for (int i = 0; i < 20; ++i) mine.push_back(at::full({1000}, 100 * world.rank() + i));
    const auto shared = share_tensors(world.group(), world, mine);
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (size_t owner = 0; owner < 3; ++owner) {
      threads.emplace_back([&, owner] {
        for (size_t i = 0; i < 20; ++i) {
          const auto expected = at::full({1000}, static_cast<int64_t>(100 * owner + i));
          if (at::equal(shared[owner][i].to_here(), expected)) ++right;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, 60);
    shutdown_rpc(world);
  });
}

TEST(RpcTest, AFetchMayBeUnderWayWhileTheRankDoesOtherThings) {
  spawn(2, [](World& world) {
    init_rpc(world);
    const auto rpc = detail::rpc_of(world, "test");
    const auto kept = rpc->publish({at::full({100'000}, world.rank())});
    const auto ids = all_gather_text(world.group(), std::to_string(kept->id()));
    const int other = 1 - world.rank();
    const uint64_t id = std::stoull(ids[static_cast<size_t>(other)]);
    std::vector<detail::PendingFetch> pending;
    for (int i = 0; i < 8; ++i) pending.push_back(rpc->fetch_async("test", {.owner = other, .id = id}));
    barrier(world.group());
    for (auto& fetch : pending) EXPECT_TRUE(at::equal(fetch.wait(), at::full({100'000}, other)));
    shutdown_rpc(world);
  });
}

TEST(RpcTest, ShutdownWaitsForFetchesUnderWay) {
  spawn(2, [](World& world) {
    init_rpc(world);
    const auto rpc = detail::rpc_of(world, "test");
    const auto kept = rpc->publish({at::full({4'000'000}, world.rank())});
    const auto ids = all_gather_text(world.group(), std::to_string(kept->id()));
    const int other = 1 - world.rank();
    std::vector<detail::PendingFetch> pending;
    if (world.rank() == 0) {
      for (int i = 0; i < 4; ++i) pending.push_back(rpc->fetch_async("test", {.owner = 1, .id = std::stoull(ids[1])}));
    }
    shutdown_rpc(world);
    for (auto& fetch : pending) EXPECT_TRUE(at::equal(fetch.wait(), at::full({4'000'000}, other)));
  });
}

TEST(RpcTest, AShutdownRightAfterAFetchIsNoFaultThatTheAgentsTellOf) {
  ::testing::internal::CaptureStderr();
  for (size_t i = 0; i < 40; ++i) {
    spawn(3, [i](World& world) {
      init_rpc(world);
      const auto shared = share_tensors(world.group(), world, {at::ones({4}), at::empty({0})});
      EXPECT_TRUE(world.rank() != 0 || shared[2][i % 2].to_here().numel() == (i % 2 == 0 ? 4 : 0));
      shutdown_rpc(world);
    });
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(RpcTest, LeavesNoThreadBehind) {
  spawn(3, [](World& world) {
    barrier(world.group());
    static size_t before = 0;
    if (world.rank() == 0) before = count_threads();
    barrier(world.group());
    for (int round = 0; round < 2; ++round) {  // it may be started again
      init_rpc(world);
      const auto shared = share_tensors(world.group(), world, {at::ones({3})});
      EXPECT_TRUE(at::equal(shared[static_cast<size_t>((world.rank() + 1) % 3)][0].to_here(), at::ones({3})));
      EXPECT_GT(count_threads(), before);
      shutdown_rpc(world);
      barrier(world.group());
      EXPECT_EQ(count_threads_until(before), before);
      barrier(world.group());
    }
  });
}

TEST(RpcTest, AWorldThatEndsWithoutShutdownEndsItsThreads) {
  spawn(2, [](World& world) { barrier(world.group()); });
  const size_t before = count_threads();
  std::vector<std::vector<RemoteTensor>> outlives;
  spawn(2, [&](World& world) {
    init_rpc(world);
    auto shared = share_tensors(world.group(), world, {at::ones({3})});
    EXPECT_TRUE(at::equal(shared[static_cast<size_t>(1 - world.rank())][0].to_here(), at::ones({3})));
    barrier(world.group());
    if (world.rank() == 0) outlives = shared;
  });
  EXPECT_EQ(count_threads_until(before), before);
  EXPECT_THROW(outlives[1][0].to_here(), c10::Error);
  EXPECT_THROW(outlives[0][0].to_here(), c10::Error);
}

TEST(RpcTest, ARankThatFailsEndsTheWorldAsEver) {
  const auto start = std::chrono::steady_clock::now();
  try {
    spawn(3, [](World& world) {
      init_rpc(world);
      const auto shared = share_tensors(world.group(), world, {at::ones({3})});
      if (world.rank() == 1) throw std::logic_error("rank 1 is odd");
      barrier(world.group());
    });
    ADD_FAILURE() << "no exception";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 is odd");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(RpcTest, TensorsAreSharedForAsLongAsAHandleIsKept) {
  spawn(2, [](World& world) {
    init_rpc(world);
    at::Tensor mine = at::ones({3});
    std::optional<RemoteTensor> last;
    {
      const auto shared = share_tensors(world.group(), world, {mine});
      last = shared[static_cast<size_t>(1 - world.rank())][0];
    }
    EXPECT_EQ(mine.use_count(), 2u);
    barrier(world.group());
    EXPECT_TRUE(at::equal(last->to_here(), at::ones({3})));
    barrier(world.group());
    last.reset();
    EXPECT_EQ(mine.use_count(), 1u);
    shutdown_rpc(world);
  });
}

// Messages

TEST(RpcMessageTest, RequestsAndRepliesReadAsTheyWereWritten) {
  const detail::RpcRequest request{.kind = detail::RpcRequest::fetch, .to = 7, .id = ~uint64_t{0}, .index = 3};
  const auto read = detail::parse_request(to_message(request));
  EXPECT_EQ(read.kind, request.kind);
  EXPECT_EQ(read.to, 7);
  EXPECT_EQ(read.id, ~uint64_t{0});
  EXPECT_EQ(read.index, 3u);
  using detail::RpcReply;
  EXPECT_FALSE(parse_reply(to_message(RpcReply{})).tensor);
  EXPECT_EQ(parse_reply(to_message(RpcReply{.status = RpcReply::no_such_index, .count = 5})).count, 5u);
  EXPECT_EQ(parse_reply(to_message(RpcReply{.status = RpcReply::failed, .text = "no"})).text, "no");
  const std::string long_text(1 << 20, 'x');
  EXPECT_EQ(parse_reply(to_message(RpcReply{.status = RpcReply::failed, .text = long_text})).text.size(), 1u << 16);
  const auto reply = parse_reply(to_message(RpcReply{.tensor = at::arange(6).view({2, 3})}));
  EXPECT_TRUE(at::equal(*reply.tensor, at::arange(6).view({2, 3})));
}

TEST(RpcMessageTest, AMessageThatNobodySendsIsRefused) {
  using detail::RpcReply;
  const auto good = to_message(RpcReply{.tensor = at::arange(6).view({2, 3})});
  const auto refuses = [](const detail::RpcMessage& message) {
    try {
      detail::parse_reply(message);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refuses(good));
  EXPECT_TRUE(refuses({{}, good.data}));
  EXPECT_TRUE(refuses({good.head}));                                 // the data is missing
  EXPECT_TRUE(refuses({good.head, good.data.narrow(0, 0, 47)}));     // too little
  EXPECT_TRUE(refuses({good.head, at::arange(6)}));                  // no bytes
  EXPECT_TRUE(refuses({to_message(RpcReply{}).head, good.data}));    // not announced
  EXPECT_TRUE(refuses({to_message(detail::RpcRequest{}).head}));     // a request
  EXPECT_THROW(detail::parse_request(good), std::invalid_argument);  // a reply
  // Every cut, and every change of one number to an extreme one, is refused or harmless: what is read fits the data.
  for (size_t length = 0; length < good.head.size(); ++length) {
    auto cut = good;
    cut.head.resize(length);
    EXPECT_TRUE(refuses(cut)) << length;
  }
  for (size_t at = 0; at < good.head.size(); at += 8) {
    for (const int64_t value : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{4}, int64_t{20}, int64_t{64},
                                int64_t{65}, int64_t{1} << 32, int64_t{1} << 62, std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()}) {
      auto changed = good;
      std::memcpy(changed.head.data() + at, &value, 8);
      try {
        const auto reply = detail::parse_reply(changed);
        EXPECT_EQ(reply.tensor ? reply.tensor->nbytes() : 48, 48u);
      } catch (const std::invalid_argument&) {  // as it should
      }
    }
  }
}

}  // namespace
}  // namespace sherd
