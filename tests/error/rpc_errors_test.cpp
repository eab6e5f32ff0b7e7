// Every error of RPC, whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <regex>
#include <thread>

#include "comm/rpc.h"
#include "comm/world_state.h"
#include "error/rank_errors.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/rpc.h"

namespace sherd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;

/// Right calls at the wrong time: c10::Error itself, as PyTorch raises RuntimeError.
std::string state_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    EXPECT_EQ(typeid(error), typeid(c10::Error));
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "no exception";
  return "";
}

/// What the wire said differs from case to case.
std::string without_cause(const std::string& text) {
  return std::regex_replace(text, std::regex("\n  cause: [^\n]+\n"), "\n  cause: ...\n");
}

TEST(RpcErrorTest, BeforeItIsStarted) {
  spawn(1, [](World& world) {
    const auto text = [](const std::string& operation) {
      return operation +
             ": the world has no RPC\n"
             "  rank: 0\n"
             "  help: sherd::init_rpc(world) on every rank, first";
    };
    EXPECT_EQ(state_error([&] { rpc_names(world); }), text("rpc_names"));
    EXPECT_EQ(state_error([&] { shutdown_rpc(world); }), text("shutdown_rpc"));
    EXPECT_EQ(state_error([&] { detail::rpc_of(world, "remote_shards"); }), text("remote_shards"));
  });
}

TEST(RpcErrorTest, SharingWhereARankHasNone) {
  const auto errors = errors_of_ranks(3, [](World& world) {
    init_rpc(world);
    barrier(world.group());
    if (world.rank() == 1) world.state()->end_rpc();
    share_tensors(world.group(), world, {at::ones({1})});
  });
  EXPECT_THAT(errors, Each("share_tensors: 1 of 3 ranks failed\n"
                           "  rank 1: share_tensors: the world has no RPC\n"
                           "      rank: 1\n"
                           "      help: sherd::init_rpc(world) on every rank, first\n"
                           "  help: mend what these ranks say; no rank went on"));
}

TEST(RpcErrorTest, StartedTwice) {
  spawn(2, [](World& world) {
    init_rpc(world);
    EXPECT_EQ(state_error([&] { init_rpc(world); }),
              "init_rpc: the world has RPC already\n"
              "  rank: " +
                  std::to_string(world.rank()) +
                  "\n"
                  "  help: call it once, or sherd::shutdown_rpc(world) before");
    shutdown_rpc(world);
  });
}

TEST(RpcErrorTest, APretendedWorld) {
  EXPECT_EQ(state_error([] { init_rpc(fake_world(0, 4)); }),
            "init_rpc: the other ranks of this world are pretended\n"
            "  world: 4 ranks\n"
            "  help: sherd::spawn(4, fn) or sherd::init()");
}

TEST(RpcErrorTest, TwoRanksOfOneName) {
  const auto errors =
      errors_of_ranks(4, [](World& world) { init_rpc(world, {.name = world.rank() % 2 == 1 ? "trainer" : ""}); });
  EXPECT_THAT(errors, Each("init_rpc: two ranks have the same name\n"
                           "  name: trainer\n"
                           "  ranks: 1 and 3\n"
                           "  help: RpcOptions{.name = \"trainer3\"}, or no name"));
}

TEST(RpcErrorTest, OptionsThatCannotBe) {
  const auto names =
      errors_of_ranks(2, [](World& world) { init_rpc(world, {.name = world.rank() == 1 ? "worker1/cpu" : ""}); });
  EXPECT_THAT(names, Each("init_rpc: 1 of 2 ranks failed\n"
                          "  rank 1: init_rpc: a rank cannot have this name\n"
                          "      name: \"worker1/cpu\"\n"
                          "      allowed: 1 to 127 letters, digits, '-' and '_'\n"
                          "      help: RpcOptions{.name = \"trainer1\"}\n"
                          "  help: mend what these ranks say; no rank went on"));
  const auto threads = errors_of_ranks(2, [](World& world) { init_rpc(world, {.threads = world.rank()}); });
  EXPECT_THAT(threads, Each("init_rpc: 1 of 2 ranks failed\n"
                            "  rank 0: init_rpc: at least one thread must answer the other ranks\n"
                            "      threads: 0\n"
                            "      help: RpcOptions{.threads = 4}\n"
                            "  help: mend what these ranks say; no rank went on"));
}

TEST(RpcErrorTest, ARankThatDoesNotCome) {
  const auto errors = errors_of_ranks(3,
                                      [](World& world) {
                                        if (world.rank() != 1) return init_rpc(world);
                                        std::this_thread::sleep_for(milliseconds(1500));
                                      },
                                      {.timeout = milliseconds(500)});
  EXPECT_EQ(errors[1], "");
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(errors[rank], ::testing::HasSubstr("rank 1 never came"));
    EXPECT_THAT(errors[rank], ::testing::HasSubstr("help: "));
  }
}

TEST(RpcErrorTest, ATensorThatIsSharedNoMore) {
  spawn(2, [](World& world) {
    init_rpc(world);
    auto shared = share_tensors(world.group(), world, {at::ones({1}), at::ones({2})});
    const RemoteTensor second = shared[0][1];
    if (world.rank() == 0) shared.clear();
    static std::atomic<uint64_t> id = 0;
    const auto kept = detail::rpc_of(world, "test")->publish({});
    if (world.rank() == 0) {
      // Its own handle is one of those that keep it.
      EXPECT_TRUE(at::equal(second.to_here(), at::ones({2})));
      id = detail::rpc_of(world, "test")->publish({at::ones({1})})->id();
    }
    barrier(world.group());
    for (const int owner : {0, 1}) {
      EXPECT_EQ(state_error([&] {
                  detail::rpc_of(world, "test")->fetch("to_here", {.owner = owner, .id = 1'000'000'000, .index = 2});
                }),
                "to_here: rank " + std::to_string(owner) +
                    " shares this tensor no more\n"
                    "  tensor: 2 of what rank " +
                    std::to_string(owner) +
                    " shared as 1000000000\n"
                    "  help: keep what share_tensors returned on rank " +
                    std::to_string(owner) + " for as long as others fetch");
    }
    EXPECT_EQ(state_error([&] { detail::rpc_of(world, "test")->fetch("to_here", {.owner = 0, .id = id}); }),
              "to_here: rank 0 shares this tensor no more\n"
              "  tensor: 0 of what rank 0 shared as " +
                  std::to_string(id) +
                  "\n"
                  "  help: keep what share_tensors returned on rank 0 for as long as others fetch");
    shutdown_rpc(world);
  });
}

TEST(RpcErrorTest, AnIndexOrARankThatIsNotThere) {
  spawn(2, [](World& world) {
    init_rpc(world);
    const auto rpc = detail::rpc_of(world, "test");
    const auto kept = rpc->publish({at::ones({1}), at::ones({1})});
    const auto ids = all_gather_text(world.group(), std::to_string(kept->id()));
    for (const int owner : {0, 1}) {
      const uint64_t id = std::stoull(ids[static_cast<size_t>(owner)]);
      EXPECT_EQ(value_error([&] { rpc->fetch("fetch", {.owner = owner, .id = id, .index = 2}); }),
                "fetch: there is no such tensor\n"
                "  index: 2\n"
                "  rank " +
                    std::to_string(owner) +
                    ": shares 2\n"
                    "  help: tensors are counted from 0");
    }
    EXPECT_EQ(value_error([&] { rpc->fetch("fetch", {.owner = 2}); }),
              "fetch: there is no such rank\n"
              "  rank: 2\n"
              "  world: 2 ranks\n"
              "  help: ranks go from 0 to 1");
    shutdown_rpc(world);
  });
}

TEST(RpcErrorTest, AfterShutdown) {
  spawn(2, [](World& world) {
    init_rpc(world);
    const auto shared = share_tensors(world.group(), world, {at::ones({1})});
    shutdown_rpc(world);
    for (const auto& tensors : shared) {
      EXPECT_EQ(state_error([&] { tensors[0].to_here(); }),
                "to_here: RPC has ended on this rank\n"
                "  rank: " +
                    std::to_string(world.rank()) +
                    "\n"
                    "  help: fetch before sherd::shutdown_rpc(world)");
    }
  });
}

/// What fetching from a rank that is about to be gone leads to.
std::string error_of_fetching(const RemoteTensor& tensor) {
  try {
    for (int i = 0; i < 500; ++i) {
      tensor.to_here();
      std::this_thread::sleep_for(milliseconds(10));
    }
  } catch (const c10::DistBackendError& error) {
    return without_cause(error.what_without_backtrace());
  }
  return "none";
}

TEST(RpcErrorTest, ARankThatHasEnded) {
  spawn(3, [&](World& world) {
    init_rpc(world);
    const auto shared = share_tensors(world.group(), world, {at::ones({1})});
    if (world.rank() == 1) return;
    EXPECT_EQ(error_of_fetching(shared[1][0]),
              "to_here: rank 1 has already ended\n"
              "  cause: ...\n"
              "  help: sherd::shutdown_rpc(world) on every rank: it waits for the others");
    EXPECT_TRUE(at::equal(shared[static_cast<size_t>(2 - world.rank())][0].to_here(), at::ones({1})));  // goes on
    barrier(world.group({0, 2}));
  });
}

TEST(RpcErrorTest, ARankThatFailed) {
  std::string text;
  EXPECT_THROW(spawn(2,
                     [&](World& world) {
                       init_rpc(world);
                       const auto shared = share_tensors(world.group(), world, {at::ones({1})});
                       if (world.rank() == 1) throw std::runtime_error("the loss is not a number");
                       text = error_of_fetching(shared[1][0]);
                     }),
               std::runtime_error);
  EXPECT_EQ(text,
            "to_here: rank 1 failed\n"
            "  rank 1: the loss is not a number\n"
            "  help: mend what rank 1 says; this rank stopped because of it");
}

TEST(RpcErrorTest, ARankThatDoesNotAnswerInTime) {
  spawn(2, [](World& world) {
    init_rpc(world);
    // The owner copies for longer than that.
    const auto shared = share_tensors(world.group(), world, {at::zeros({1}).expand({20'000'000})});
    if (world.rank() == 0) {
      EXPECT_EQ(comm_error([&] { shared[1][0].to_here(milliseconds(1)); }),
                "to_here: rank 1 does not answer\n"
                "  waited: 0.001 s\n"
                "  help: see what rank 1 does; a larger timeout waits longer");
      EXPECT_EQ(shared[1][0].to_here().numel(), 20'000'000);  // another try
    }
    shutdown_rpc(world);
  });
}

TEST(RpcErrorTest, AnAgentThatDoesNotStartEndsTheWaitingOfTheOthers) {
  spawn(3, [](World& world) {
    detail::Rpc rpc(world.state()->shared_link(), {"a", "b", "c"}, world.timeout());
    const auto start = std::chrono::steady_clock::now();
    if (world.rank() == 1) {
      EXPECT_THROW(rpc.start("test", 0), c10::Error);
    } else {
      EXPECT_THROW(rpc.start("test", 1), detail::WireAbandoned);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  });
}

TEST(RpcErrorTest, TensorsThatCannotBeShared) {
  const auto share = [](const std::function<at::Tensor(World&)>& make) {
    const auto errors = errors_of_ranks(2, [&](World& world) {
      init_rpc(world);
      std::vector<at::Tensor> mine{at::ones({1})};
      if (world.rank() == 1) mine.push_back(make(world));
      try {
        share_tensors(world.group(), world, mine);
      } catch (...) {
        shutdown_rpc(world);
        throw;
      }
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  const auto text = [](const std::string& problem, const std::string& help) {
    return "share_tensors: 1 of 2 ranks failed\n"
           "  rank 1: share_tensors: " +
           problem +
           "\n"
           "      tensor: 1\n"
           "      help: " +
           help +
           "\n"
           "  help: mend what these ranks say; no rank went on";
  };
  EXPECT_EQ(share([](World&) { return at::Tensor(); }), text("a tensor is undefined", "torch::empty(sizes)"));
  EXPECT_EQ(share([](World&) { return at::eye(3).to_sparse(); }),
            text("a tensor is not dense", "tensor.to_dense() or tensor.dequantize()"));
  const std::string no_data = text("a tensor has no data of its own", "sherd::to_local(tensor), where it is a DTensor");
  EXPECT_EQ(share([](World&) { return at::empty({3}, at::kMeta); }), no_data);
  EXPECT_EQ(share([](World& world) {
              const DeviceMesh mesh("cpu", parse_mesh("[1]{" + std::to_string(world.rank()) + "}"));
              return distribute_tensor(at::ones({4}), mesh, {Shard(0)});
            }),
            no_data);
}

TEST(RpcErrorTest, AGroupOfAnotherWorld) {
  const auto errors = errors_of_ranks(2, [](World& world) {
    init_rpc(world);
    const Group group = Group::from_backend(world.group().backend(c10::DeviceType::CPU), {7, 3});
    try {
      share_tensors(group, world, {});
    } catch (...) {
      shutdown_rpc(world);
      throw;
    }
  });
  EXPECT_THAT(errors, Each("share_tensors: 2 of 2 ranks failed\n"
                           "  rank 7: share_tensors: the group is of another world\n"
                           "      group: ranks 7, 3, place 0\n"
                           "      world: rank 0\n"
                           "      help: world.group({0, 1})\n"
                           "  rank 3: share_tensors: the group is of another world\n"
                           "      group: ranks 7, 3, place 1\n"
                           "      world: rank 1\n"
                           "      help: world.group({0, 1})\n"
                           "  help: mend what these ranks say; no rank went on"));
}

}  // namespace
}  // namespace sherd::testing
