#pragma once
// The contract of a transport, as tests. A transport takes all of them with one line:
//
//   INSTANTIATE_TRANSPORT_TESTS(Gloo, (Transport{.run = over_spawn({.backend = "gloo"}), .sizes = {2, 3, 4}}));

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sherd/collectives.h"
#include "sherd/world.h"

namespace sherd::testing {

/// What a rank of a test is given.
struct Rank {
  World world;
  Group group;  // all ranks, through the transport
  at::TensorOptions options;
};
using RankBody = std::function<void(Rank&)>;

struct Transport {
  /// Runs the body on n ranks and returns when all have ended; rethrows what one of them threw.
  std::function<void(int n, const RankBody&)> run;
  std::vector<int> sizes;    // numbers of ranks to try
  bool makes_groups = true;  // any number of ranks, and the world's other groups go through it, too
  bool lists = true;         // its c10d::Backend takes lists of tensors of different sizes
  // Two other ways in which the same ranks can talk.
  const char* other = "cpu:shm,cuda:threads";
  const char* third = "cpu:gloo,cuda:threads";
};

/// What one group of `ranks` does.
struct TransportCase {
  Transport transport;
  int ranks = 1;
};
class TransportTest : public ::testing::TestWithParam<TransportCase> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const RankBody& body) const { GetParam().transport.run(ranks(), body); }
};

/// What its c10d::Backend does with lists.
class TransportListsTest : public TransportTest {};

/// What several groups do; each test says how many ranks it needs.
class TransportGroupsTest : public ::testing::TestWithParam<Transport> {
 protected:
  void run(int ranks, const RankBody& body) const { GetParam().run(ranks, body); }
};

/// Ranks that are threads, with the options given and tensors on `device`.
inline std::function<void(int, const RankBody&)> over_spawn(const WorldOptions& options, const char* device = "cpu") {
  return [options, device = std::string(device)](int n, const RankBody& body) {
    const auto run = [&](World& world) {
      Rank rank{world, world.group(), at::TensorOptions(c10::Device(device))};
      body(rank);
    };
    spawn(n, run, options);
  };
}

inline std::string case_name(const ::testing::TestParamInfo<TransportCase>& info) {
  return std::to_string(info.param.ranks) + (info.param.ranks == 1 ? "Rank" : "Ranks");
}

inline void PrintTo(const TransportCase& test, std::ostream* out) { *out << test.ranks << " ranks"; }
inline void PrintTo(const Transport&, std::ostream* out) { *out << "a transport"; }

/// What there is to test: nothing where the transport is not available.
inline std::vector<TransportCase> cases_of(const std::optional<Transport>& transport, bool lists) {
  std::vector<TransportCase> cases;
  if (!transport || (lists && !transport->lists)) return cases;
  for (const int n : transport->sizes) cases.push_back({*transport, n});
  return cases;
}
inline std::vector<Transport> groups_of(const std::optional<Transport>& transport) {
  return transport && transport->makes_groups ? std::vector{*transport} : std::vector<Transport>();
}

#define INSTANTIATE_TRANSPORT_TESTS(name, transport)                                                             \
  INSTANTIATE_TEST_SUITE_P(name, TransportTest, ::testing::ValuesIn(cases_of(transport, false)), case_name);     \
  INSTANTIATE_TEST_SUITE_P(name, TransportListsTest, ::testing::ValuesIn(cases_of(transport, true)), case_name); \
  INSTANTIATE_TEST_SUITE_P(name, TransportGroupsTest, ::testing::ValuesIn(groups_of(transport)))

}  // namespace sherd::testing
