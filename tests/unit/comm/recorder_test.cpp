#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "comm/recording.h"
#include "comm/threads.h"
#include "sherd/collectives.h"
#include "sherd/world.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

TEST(CommRecorderTest, KeepsWhatThisThreadCalls) {
  const Group group = fake_world(0, 4).group();
  barrier(group);  // before: not seen
  CommRecorder recorder;
  const at::Tensor in = at::zeros({3});
  all_gather(group, at::zeros({12}), in).wait();
  all_gather_uneven(group, at::zeros({6}), in, {3, 0, 1, 2}).wait();
  all_reduce(group, at::zeros({8}, at::kBFloat16), ReduceOp::max).wait();
  reduce_scatter(group, in, at::zeros({12})).wait();
  all_to_all(group, at::zeros({4}), at::zeros({4})).wait();
  broadcast(group, in, 1).wait();
  broadcast(group, in, 0).wait();
  scatter(group, in, at::zeros({12}), 0).wait();
  scatter(group, in, {}, 2).wait();
  send(group, in, 1).wait();
  receive(group, in, 1).wait();
  barrier(group);
  const auto call = [](const char* name, const char* dtype, int64_t numel, int64_t bytes) {
    return CollectiveCall{name, "ranks 0-3", dtype, numel, bytes};
  };
  EXPECT_THAT(recorder.calls(), ElementsAre(call("all_gather", "f32", 3, 9 * 4),       // three blocks from others
                                            call("all_gather", "f32", 3, 3 * 4),       //
                                            call("all_reduce", "bf16", 8, 2 * 6 * 2),  // a ring
                                            call("reduce_scatter", "f32", 12, 9 * 4),  //
                                            call("all_to_all", "f32", 4, 3 * 4),       //
                                            call("broadcast", "f32", 3, 3 * 4),        //
                                            call("broadcast", "f32", 3, 0),            // the root receives nothing
                                            call("scatter", "f32", 12, 0),             //
                                            call("scatter", "f32", 3, 3 * 4),          //
                                            call("send", "f32", 3, 0),                 //
                                            call("receive", "f32", 3, 3 * 4),          //
                                            call("barrier", "", 0, 0)));
  EXPECT_EQ(recorder.bytes(), 36 + 12 + 24 + 36 + 12 + 12 + 12 + 12);
}

TEST(CommRecorderTest, PrintsOneLineForEachKindOfCall) {
  const Group group = fake_world(0, 4).group();
  const Group pair = fake_world(0, 4).group({0, 2});
  CommRecorder recorder;
  for (int i = 0; i < 3; ++i) all_gather(group, at::zeros({4096}), at::zeros({1024})).wait();
  all_gather(pair, at::zeros({4}), at::zeros({2})).wait();
  all_gather(pair, at::zeros({2 << 20}, at::kDouble), at::zeros({1 << 20}, at::kDouble)).wait();
  barrier(pair);
  EXPECT_EQ(recorder.to_string(),
            "all_gather f32 on ranks 0-3 x3 36.0 KiB\n"
            "all_gather f32 on ranks 0, 2 x1 8 B\n"
            "all_gather f64 on ranks 0, 2 x1 8.0 MiB\n"
            "barrier on ranks 0, 2 x1 0 B\n");
}

TEST(CommRecorderTest, OuterRecordersSeeWhatInnerOnesSee) {
  const Group group = fake_world(0, 2).group();
  CommRecorder outer;
  barrier(group);
  {
    CommRecorder inner;
    barrier(group);
    EXPECT_EQ(inner.calls().size(), 1u);
  }
  barrier(group);
  EXPECT_EQ(outer.calls().size(), 3u);
}

TEST(CommRecorderTest, OtherThreadsAreNotSeen) {
  CommRecorder recorder;
  spawn(2, [](World& world) {
    CommRecorder own;
    barrier(world.group());
    EXPECT_EQ(own.calls().size(), 1u);
  });
  EXPECT_TRUE(recorder.calls().empty());
}

TEST(RecordingBackendTest, KeepsTheListOfCalls) {
  const auto log = std::make_shared<detail::CallLog>();
  const World world = fake_world(0, 2);
  const Group group =
      Group::from_backend(c10::make_intrusive<detail::RecordingBackend>(world.group().backend(c10::DeviceType::CPU),
                                                                        world.group().ranks(), log, false),
                          {0, 1});
  const auto backend = group.backend(c10::DeviceType::CPU);
  EXPECT_EQ(backend->getBackendName(), "fake");
  std::vector<at::Tensor> one{at::zeros({2, 3})};
  std::vector<at::Tensor> two{at::zeros({2}), at::zeros({3})};
  std::vector<std::vector<at::Tensor>> lists{two};
  at::Tensor four = at::zeros({4}, at::kInt);
  at::Tensor half = at::zeros({2}, at::kInt);
  std::vector<int64_t> rows{1, 3};
  backend->broadcast(one, c10d::BroadcastOptions{.rootRank = 1});
  backend->allreduce(one);
  backend->reduce(one, c10d::ReduceOptions());
  backend->allgather(lists, one);
  backend->_allgather_base(four, half);
  backend->gather(lists, one, c10d::GatherOptions());
  backend->scatter(one, lists, c10d::ScatterOptions());
  backend->reduce_scatter(one, lists);
  backend->_reduce_scatter_base(half, four);
  backend->alltoall_base(four, four, rows, rows);
  backend->alltoall(two, two, {});
  backend->send(one, 1, 0);
  backend->recv(one, 1, 0);
  backend->barrier();
  EXPECT_THAT(*log, ElementsAre("broadcast root 1 f32[2, 3]", "all_reduce(sum) f32[2, 3]",
                                "reduce(sum) root 0 f32[2, 3]", "all_gather f32[2, 3] into blocks of [2, 3]",
                                "all_gather i32[2]", "gather root 0 f32[2, 3] into blocks of [2, 3]",
                                "scatter root 0 f32 blocks of [2, 3]", "reduce_scatter(sum) f32 blocks of [2, 3]",
                                "reduce_scatter(sum) i32 blocks of [2, 2]", "all_to_all i32 blocks of [1, 3]",
                                "all_to_all f32 blocks of [2, 3]", "send f32[2, 3]", "receive f32[2, 3]", "barrier"));
}

// What the transport moves instead, bytes in an all_to_all for instance, is not what was called.
TEST(RecordingBackendTest, NotesTheCollectivesOfSherdByTheirNamesAndDtypes) {
  const auto calls = [](World& world) {
    const auto log = std::make_shared<detail::CallLog>();
    const Group group =
        Group::from_backend(c10::make_intrusive<detail::RecordingBackend>(world.group().backend(c10::DeviceType::CPU),
                                                                          world.group().ranks(), log, false),
                            world.group().ranks());
    const int me = world.rank();
    const auto of = [](int64_t n, at::ScalarType dtype) { return at::zeros({n}, dtype); };
    scatter(group, of(1 + me, at::kFloat), me == 0 ? of(3, at::kFloat) : at::Tensor(), 0, {1, 2}).wait();
    all_gather(group, of(8, at::kInt), of(4, at::kInt)).wait();
    all_gather_uneven(group, of(3, at::kBFloat16), of(1 + me, at::kBFloat16), {1, 2}).wait();
    all_reduce(group, of(2, at::kShort), ReduceOp::bxor).wait();
    all_reduce(group, of(2, at::kBool), ReduceOp::sum).wait();
    reduce_scatter(group, of(2, at::kComplexFloat), of(4, at::kComplexFloat), ReduceOp::avg).wait();
    all_to_all(group, of(4, at::kDouble), of(4, at::kDouble)).wait();
    broadcast(group, of(2, at::kHalf), 1).wait();
    if (me == 0) send(group, of(5, at::kLong), 1).wait();
    if (me == 1) receive(group, of(5, at::kLong), 0).wait();
    barrier(group);
    return *log;
  };
  for (const char* backend : {"threads", "gloo"}) {
    std::vector<detail::CallLog> logs(2);
    spawn(2, [&](World& world) { logs[static_cast<size_t>(world.rank())] = calls(world); }, {.backend = backend});
    EXPECT_THAT(logs[0],
                ElementsAre("scatter root 0 f32 blocks of [1, 2]", "all_gather i32[4]",
                            "all_gather bf16[1] into blocks of [1, 2]", "all_reduce(bxor) i16[2]",
                            "all_reduce(sum) bool[2]", "reduce_scatter(avg) c64 blocks of [2, 2]",
                            "all_to_all f64 blocks of [2, 2]", "broadcast root 1 f16[2]", "send i64[5]", "barrier"))
        << backend;
    EXPECT_THAT(
        logs[1],
        ElementsAre("scatter root 0 f32[2]", "all_gather i32[4]", "all_gather bf16[2] into blocks of [1, 2]",
                    "all_reduce(bxor) i16[2]", "all_reduce(sum) bool[2]", "reduce_scatter(avg) c64 blocks of [2, 2]",
                    "all_to_all f64 blocks of [2, 2]", "broadcast root 1 f16[2]", "receive i64[5]", "barrier"))
        << backend;
  }
}

}  // namespace
}  // namespace sherd
