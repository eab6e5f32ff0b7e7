// Samples dealt to ranks, and their rows as parts of one batch: the batches of one device.

#include "sherd/sharded_data.h"

#include <set>
#include <sstream>

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

// The samples of each batch of an epoch, of all ranks together in the order of their rows.
std::vector<std::vector<size_t>> epoch_of(std::vector<ShardedSampler>& ranks, size_t batch) {
  std::vector<std::vector<size_t>> batches;
  for (ShardedSampler& sampler : ranks) sampler.reset();
  while (true) {
    std::vector<size_t> all;
    std::set<size_t> sizes;
    for (ShardedSampler& sampler : ranks) {
      const auto mine = sampler.next(batch);
      sizes.insert(mine ? mine->size() : 0);
      if (mine) all.insert(all.end(), mine->begin(), mine->end());
    }
    EXPECT_EQ(sizes.size(), 1U) << "all ranks have equally many";
    if (all.empty()) return batches;
    batches.push_back(all);
  }
}

std::vector<ShardedSampler> samplers(size_t size, int64_t ranks, const ShardedSamplerOptions& options) {
  std::vector<ShardedSampler> all;
  for (int64_t rank = 0; rank < ranks; ++rank) all.emplace_back(size, ranks, rank, options);
  return all;
}

TEST(ShardedSamplerTest, BatchesAreThoseOfOneRank) {
  for (const bool shuffle : {true, false}) {
    for (const size_t size : {0, 1, 24, 4096}) {
      for (const int64_t ranks : {2, 3, 4}) {
        auto one = samplers(size, 1, {.seed = 7, .shuffle = shuffle, .rest = UnevenRest::drop});
        auto several = samplers(size, ranks, {.seed = 7, .shuffle = shuffle, .rest = UnevenRest::drop});
        for (int epoch = 0; epoch < 2; ++epoch) {
          auto expected = epoch_of(one, static_cast<size_t>(ranks) * 2);
          const auto got = epoch_of(several, 2);
          const size_t rest = size % static_cast<size_t>(ranks);
          if (!expected.empty()) expected.back().resize(expected.back().size() - rest);
          if (!expected.empty() && expected.back().empty()) expected.pop_back();
          EXPECT_EQ(got, expected) << size << " samples, " << ranks << " ranks, epoch " << epoch;
        }
      }
    }
  }
}

TEST(ShardedSamplerTest, EverySampleComesOnceAndPaddingComesTwice) {
  for (const UnevenRest rest : {UnevenRest::pad, UnevenRest::drop}) {
    auto ranks = samplers(10, 4, {.seed = 3, .rest = rest});
    std::vector<std::vector<size_t>> first;
    for (int epoch = 0; epoch < 3; ++epoch) {
      const auto batches = epoch_of(ranks, 2);
      std::multiset<size_t> seen;
      for (const auto& batch : batches) seen.insert(batch.begin(), batch.end());
      EXPECT_EQ(seen.size(), rest == UnevenRest::pad ? 12U : 8U);
      EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), rest == UnevenRest::pad ? 10U : 8U);
      if (epoch == 0) first = batches;
      EXPECT_EQ(batches == first, epoch == 0) << "every epoch has an order of its own";
    }
    for (ShardedSampler& sampler : ranks) sampler.set_epoch(0);
    EXPECT_EQ(epoch_of(ranks, 2), first);
    auto other = samplers(10, 4, {.seed = 4, .rest = rest});
    EXPECT_NE(epoch_of(other, 2), first);
  }
  auto few = samplers(2, 5, {.shuffle = false});
  EXPECT_EQ(epoch_of(few, 3), (std::vector<std::vector<size_t>>{{0, 1, 0, 1, 0}}));
}

TEST(ShardedSamplerTest, GoesOnWithAnotherNumberOfRanks) {
  auto one = samplers(24, 1, {.seed = 7});
  const auto expected = epoch_of(one, 4);
  auto two = samplers(24, 2, {.seed = 7});
  for (ShardedSampler& sampler : two) sampler.reset();
  for (ShardedSampler& sampler : two) sampler.next(2);
  const ShardedSampler::State state = two[0].state();
  EXPECT_EQ(state.taken, 4U);
  EXPECT_EQ(two[1].state().taken, 4U);
  auto four = samplers(24, 4, {.seed = 7});
  for (ShardedSampler& sampler : four) sampler.set_state(state);
  auto rest = epoch_of(four, 1);
  EXPECT_EQ(rest, std::vector(expected.begin() + 1, expected.end()));
  EXPECT_EQ(epoch_of(four, 1), epoch_of(one, 4)) << "the epoch after";
}

// Two axes that cut a batch do so one after the other: the places of the sampler are those of Shard(0) on both.
TEST(ShardedSamplerTest, AMeshOfTwoAxes) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    ShardedSampler sampler(8, mesh, {.shuffle = false});
    std::vector<Tensor> batches = {torch::tensor([&] {
      const std::vector<size_t> mine = sampler.next(2).value();
      return std::vector<int64_t>(mine.begin(), mine.end());
    }())};
    for (const Tensor& batch : sharded_batches(batches, mesh)) expect_close(batch, torch::arange(8), "samples");
  });
}

TEST(ShardedSamplerTest, SavedAndLoadedByTorch) {
  ShardedSampler sampler(24, 2, 1, {.seed = 7});
  sampler.reset();
  sampler.next(2);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::ostringstream bytes;
  out.save_to(bytes);
  std::istringstream again(bytes.str());
  torch::serialize::InputArchive in;
  in.load_from(again);
  ShardedSampler other(24, 2, 1, {.seed = 7});
  other.load(in);
  other.reset();
  EXPECT_EQ(other.next(2), sampler.next(2));
}

// Samples that know their number.
class Counted : public torch::data::datasets::Dataset<Counted> {
 public:
  torch::data::Example<> get(size_t i) override {
    return {torch::full({2}, static_cast<double>(i), torch::kDouble), torch::tensor(static_cast<int64_t>(i))};
  }
  std::optional<size_t> size() const override { return 11; }
};

// One device reads them through torch's loader; a mesh with a tensor parallel axis through sharded_batches().
TEST(ShardedBatchesTest, ALoaderOfTorch) {
  std::vector<torch::data::Example<>> expected;
  auto alone = torch::data::make_data_loader(Counted().map(torch::data::transforms::Stack<>()),
                                             ShardedSampler(11, 1, 0, {.seed = 5}), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *alone) expected.push_back(batch);
  }
  ASSERT_EQ(expected.size(), 6U);
  for (const bool equal : {false, true}) {
    spawn(4, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
      auto loader =
          torch::data::make_data_loader(Counted().map(torch::data::transforms::Stack<>()),
                                        ShardedSampler(11, mesh["dp"], {.seed = 5, .rest = UnevenRest::drop}), 2);
      std::vector<torch::data::Example<>> got;
      {
        const CommRecorder recorder;
        for (int epoch = 0; epoch < 2; ++epoch) {
          for (auto& batch : sharded_batches(loader, mesh, {.axes = {"dp"}, .equal = equal})) got.push_back(batch);
        }
        // One for each batch, one for each end.
        EXPECT_EQ(recorder.calls().size(), equal ? 0U : 8U) << recorder.to_string();
      }
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t rows = i % 3 == 2 ? 2 : 4;  // of 3 left, 2 can be shared
        EXPECT_EQ(placements_of(got[i].data), (Placements{Shard(0), Replicate()}));
        expect_close(got[i].data, expected[i].data.narrow(0, 0, rows), "data");
        expect_close(got[i].target, expected[i].target.narrow(0, 0, rows), "target");
      }
    });
  }
}

TEST(ShardedBatchesTest, BatchesOfAllForms) {
  using Batch = std::tuple<std::map<std::string, Tensor>, std::vector<Tensor>, std::optional<Tensor>, int,
                           torch::data::TensorExample, std::pair<Tensor, std::string>, Tensor,
                           std::unordered_map<std::string, Tensor>>;
  spawn(3, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    const Tensor mine = torch::full({2, 3}, world.rank(), torch::kDouble);
    const Tensor whole = torch::arange(3, torch::kDouble).repeat_interleave(2).unsqueeze(1).expand({6, 3});
    std::vector<Batch> loader;
    loader.emplace_back(std::map<std::string, Tensor>{{"x", mine}}, std::vector<Tensor>{mine, mine + 1}, mine, 7, mine,
                        std::pair(mine, "text"), torch::tensor(5),
                        std::unordered_map<std::string, Tensor>{{"y", mine}});
    int batches = 0;
    for (auto& [map, list, optional, number, example, pair, scalar, unordered] : sharded_batches(loader, mesh["dp"])) {
      ++batches;
      expect_close(map.at("x"), whole, "map");
      expect_close(list.at(1), whole + 1, "list");
      expect_close(*optional, whole, "optional");
      EXPECT_EQ(number, 7);
      expect_close(example.data, whole, "example");
      expect_close(pair.first, whole, "pair");
      EXPECT_FALSE(is_dtensor(scalar));
      expect_close(unordered.at("y"), whole, "unordered map");
    }
    EXPECT_EQ(batches, 1);
  });
}

TEST(ShardedBatchesTest, RanksWithDifferentNumbersOfRows) {
  spawn(3, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    const int64_t rows[] = {2, 0, 3};
    std::vector<Tensor> loader = {torch::full({rows[world.rank()], 2}, world.rank(), torch::kDouble)};
    for (const Tensor& batch : sharded_batches(loader, mesh)) {
      expect_close(batch, torch::tensor({0.0, 0.0, 2.0, 2.0, 2.0}, torch::kDouble).unsqueeze(1).expand({5, 2}), "rows");
    }
  });
}

TEST(ShardedBatchesTest, Errors) {
  const auto ended = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    std::vector<Tensor> loader(world.rank() == 0 ? 2 : 3, torch::ones({2}));
    for (const Tensor& batch : sharded_batches(loader, mesh)) EXPECT_EQ(batch.size(0), 4);
  });
  for (const std::string& error : ended) {
    EXPECT_EQ(error,
              "sharded_batches: some ranks have no more batches while others have\n"
              "  places without: 0\n"
              "  of: [dp=2]\n"
              "  help: sherd::ShardedSampler, which gives every rank equally many");
  }
  const auto uneven = errors_of_ranks(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    std::vector<std::pair<Tensor, Tensor>> loader = {{torch::ones({2}), torch::ones({2 + world.rank()})}};
    for (const auto& batch : sharded_batches(loader, mesh)) EXPECT_TRUE(batch.first.defined());
  });
  for (const std::string& error : uneven) {
    EXPECT_EQ(error,
              "sharded_batches: the tensors of a batch have different numbers of rows\n"
              "  at places: 1\n"
              "  of: [dp=2]\n"
              "  help: stack samples along dim 0 of every tensor");
  }
  EXPECT_EQ(value_error([] { ShardedSampler(3, 2, 2); }),
            "ShardedSampler: there is no such rank\n"
            "  rank: 2\n"
            "  ranks: 2\n"
            "  help: 0 <= rank < ranks");
  spawn(1, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"dp"});
    std::vector<Tensor> loader;
    EXPECT_EQ(value_error([&] { sharded_batches(loader, mesh, {.axes = {"data"}}); }),
              "sharded_batches: there is no axis \"data\"\n"
              "  mesh: [dp=1]\n"
              "  help: name the axes of the mesh that cut the batch, or none for all");
  });
}

}  // namespace
}  // namespace sherd::testing
