// What crosses from host to host: the hosts are made up, the ranks are threads.

#include "comm/hierarchical.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <map>

#include "sherd/collectives.h"
#include "sherd/world.h"

namespace sherd::detail {
namespace {

using Bytes = std::map<int, std::atomic<int64_t>>;  // sent by each host to others

// Counts what is sent. It has messages and nothing else.
class CountingBackend final : public c10d::Backend {
 public:
  CountingBackend(c10::intrusive_ptr<c10d::Backend> inner, const Hosts& hosts, Bytes& sent)
      : c10d::Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), hosts_(hosts), sent_(sent) {}

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    const int host = hosts_.host_of[static_cast<size_t>(getRank())];
    EXPECT_NE(host, hosts_.host_of[static_cast<size_t>(to)]) << "a message inside a host";
    sent_.at(host) += static_cast<int64_t>(tensors.at(0).nbytes());
    return inner_->send(tensors, to, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return inner_->recv(tensors, from, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  const Hosts& hosts_;
  Bytes& sent_;
};

struct Case {
  const char* name;
  std::vector<std::string> keys;  // the host of each rank
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class HierarchicalTest : public ::testing::TestWithParam<Case> {
 protected:
  // Runs `body` on every rank and returns the bytes that each host sent to others, less what a barrier costs.
  std::map<int, int64_t> bytes_of(const std::function<void(const Group&)>& body) {
    const std::map<int, int64_t> meeting = sent_by([](const Group& group) { barrier(group); });
    std::map<int, int64_t> bytes = sent_by(body);
    for (auto& [host, sent] : bytes) sent -= meeting.at(host);
    return bytes;
  }
  int ranks() const { return static_cast<int>(GetParam().keys.size()); }
  const Hosts hosts_ = Hosts::of(GetParam().keys);

 private:
  std::map<int, int64_t> sent_by(const std::function<void(const Group&)>& body) {
    Bytes sent;
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) sent[host] = 0;
    spawn(ranks(), [&](World& world) {
      const auto& beside = hosts_.beside(world.rank());
      const Group inside = world.group({beside.begin(), beside.end()});
      const auto all = world.group();
      const auto backend = c10::make_intrusive<HierarchicalBackend>(
          world.rank(), HierarchicalParts{.hosts = hosts_,
                                          .ranks = all.ranks(),
                                          .inside = inside.backend(c10::DeviceType::CPU),
                                          .between = c10::make_intrusive<CountingBackend>(
                                              all.backend(c10::DeviceType::CPU), hosts_, sent)});
      body(Group::from_backend(backend, all.ranks(), c10::DeviceType::CPU));
    });
    return {sent.begin(), sent.end()};
  }
};

constexpr int64_t kNumel = 120'000;
constexpr int64_t kBytes = kNumel * 4;

TEST_P(HierarchicalTest, AnAllReduceSendsTheTensorOutOfAHostTwiceLessItsShare) {
  const auto bytes = bytes_of([](const Group& group) {
    const at::Tensor inout = at::full({kNumel}, group.rank() + 1.0f);
    all_reduce(group, inout).wait();
    EXPECT_EQ(inout[kNumel - 1].item<float>(), static_cast<float>(group.size() * (group.size() + 1) / 2));
  });
  // As few as a ring of one rank for each host: once to be combined, once combined.
  const auto hosts = static_cast<int64_t>(hosts_.size());
  for (const auto& [host, sent] : bytes) EXPECT_NEAR(sent, 2 * kBytes * (hosts - 1) / hosts, 200) << host;
}

TEST_P(HierarchicalTest, ASmallAllReduceSendsOneTensorToEachHost) {
  const auto bytes = bytes_of([](const Group& group) { all_reduce(group, at::ones({1000})).wait(); });
  for (const auto& [host, sent] : bytes) EXPECT_EQ(sent, 4000 * (static_cast<int64_t>(hosts_.size()) - 1)) << host;
}

TEST_P(HierarchicalTest, AnAllGatherSendsEachBlockOnceToEachHost) {
  const auto bytes = bytes_of([](const Group& group) {
    const at::Tensor out = at::empty({group.size(), kNumel});
    all_gather(group, out, at::full({kNumel}, static_cast<float>(group.rank()))).wait();
    for (int i = 0; i < group.size(); ++i) EXPECT_EQ(out[i][kNumel - 1].item<float>(), static_cast<float>(i));
  });
  for (const auto& [host, sent] : bytes) {
    const auto here = static_cast<int64_t>(hosts_.members[static_cast<size_t>(host)].size());
    EXPECT_EQ(sent, here * kBytes * (static_cast<int64_t>(hosts_.size()) - 1)) << host;
  }
}

TEST_P(HierarchicalTest, AReduceScatterSendsEachBlockOnceFromEachHost) {
  const auto bytes = bytes_of([](const Group& group) {
    const at::Tensor out = at::empty({kNumel});
    reduce_scatter(group, out, at::full({group.size(), kNumel}, 1.0f)).wait();
    EXPECT_EQ(out[0].item<float>(), static_cast<float>(group.size()));
  });
  for (const auto& [host, sent] : bytes) {
    const auto elsewhere = ranks() - static_cast<int64_t>(hosts_.members[static_cast<size_t>(host)].size());
    EXPECT_EQ(sent, elsewhere * kBytes) << host;
  }
}

TEST_P(HierarchicalTest, ABroadcastReachesEachHostOnce) {
  for (int root = 0; root < ranks(); ++root) {
    const auto bytes = bytes_of([&](const Group& group) {
      const at::Tensor inout = at::full({kNumel}, static_cast<float>(group.rank()));
      broadcast(group, inout, root).wait();
      EXPECT_EQ(inout[kNumel - 1].item<float>(), static_cast<float>(root));
    });
    int64_t total = 0;
    for (const auto& [host, sent] : bytes) total += sent;
    EXPECT_EQ(total, kBytes * (static_cast<int64_t>(hosts_.size()) - 1)) << root;
  }
}

TEST_P(HierarchicalTest, AReduceSendsOneTensorFromEachHostAndLeavesTheOthersAlone) {
  for (const int64_t numel : {int64_t{10}, kNumel}) {
    const int root = ranks() - 1;
    const auto bytes = bytes_of([&](const Group& group) {
      std::vector<at::Tensor> inout{at::full({numel}, group.rank() + 1.0f)};
      c10d::ReduceOptions options;
      options.rootRank = root;
      options.reduceOp = c10d::ReduceOp::AVG;
      group.backend(c10::DeviceType::CPU)->reduce(inout, options)->wait();
      const auto n = static_cast<float>(group.size());
      const auto mine = static_cast<float>(group.rank() + 1);
      EXPECT_EQ(inout[0][numel - 1].item<float>(), group.rank() == root ? (n + 1) / 2 : mine);
    });
    for (const auto& [host, sent] : bytes) {
      const bool has_root = host == hosts_.host_of[static_cast<size_t>(root)];
      EXPECT_EQ(sent, has_root ? 0 : numel * 4) << host;
    }
  }
}

TEST_P(HierarchicalTest, AnAllToAllSendsWhatRanksOfOtherHostsTake) {
  const auto bytes = bytes_of([](const Group& group) {
    const at::Tensor in = at::full({group.size(), 10}, static_cast<float>(group.rank()));
    const at::Tensor out = at::empty_like(in);
    all_to_all(group, out, in).wait();
    for (int i = 0; i < group.size(); ++i) EXPECT_EQ(out[i][9].item<float>(), static_cast<float>(i));
  });
  for (const auto& [host, sent] : bytes) {
    const auto here = static_cast<int64_t>(hosts_.members[static_cast<size_t>(host)].size());
    EXPECT_EQ(sent, here * (ranks() - here) * 40) << host;
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, HierarchicalTest,
                         ::testing::Values(Case{"TwoAndTwo", {"a", "a", "b", "b"}},
                                           Case{"ThreeAndOne", {"a", "a", "a", "b"}},
                                           Case{"Interleaved", {"a", "b", "a", "b", "a"}},
                                           Case{"Three", {"a", "b", "b", "c", "a", "b", "a", "b"}},
                                           Case{"Five", {"a", "b", "c", "d", "e", "e"}}),
                         [](const auto& hosts) { return hosts.param.name; });

TEST(HostsOfTest, HostsAreInTheOrderOfTheirFirstMembers) {
  const Hosts hosts = Hosts::of({"b", "a", "b", "c", "a"});
  EXPECT_EQ(hosts.members, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(hosts.host_of, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(hosts.place_of, (std::vector<int>{0, 0, 1, 0, 1}));
  EXPECT_EQ(hosts.beside(4), (std::vector<int>{1, 4}));
}

}  // namespace
}  // namespace sherd::detail
