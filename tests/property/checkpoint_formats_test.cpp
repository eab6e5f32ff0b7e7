// Every format that is read, into every layout: what a rank holds afterwards is its part of the tensor that was saved.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "property/random_state.h"
#include "sherd/convert.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;

// Those that all formats have.
const std::vector<c10::ScalarType> kDtypes = {
    torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,      torch::kLong,         torch::kInt,
    torch::kShort, torch::kChar,   torch::kByte, torch::kFloat8_e4m3fn, torch::kComplexFloat, torch::kBool};

std::vector<DrawnTensor> draw_tensors(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  std::vector<DrawnTensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    DrawnTensor tensor{{}, kDtypes[i % kDtypes.size()], below(1000)};
    for (int64_t d = below(4); d > 0; --d) tensor.size.push_back(below(9));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

StateDict make_state(const std::vector<DrawnTensor>& tensors, uint32_t seed, const World& world, bool filled) {
  StateMaker maker(seed, world);
  StateDict model;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor whole = tensors[i].whole();
    model["t" + std::to_string(i)] = maker.make(filled ? whole : torch::zeros_like(whole));
  }
  StateDict optimizer{{"lr", filled ? 0.5 : 0.0}, {"betas", StateTuple{{0.9, 0.99}}}};
  return {{"model", model}, {"optimizer", optimizer}, {"step", filled ? 1000 : 0}, {"names", StateList{"a", "b"}}};
}

void expect_filled(const StateDict& state, const std::vector<DrawnTensor>& tensors, const std::string& where) {
  const StateDict& model = *state.at("model").dict();
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(holds(*model.at("t" + std::to_string(i)).tensor(), tensors[i].whole()))
        << where << ", tensor " << i << " of size " << to_string(tensors[i].size) << " and "
        << c10::toString(tensors[i].dtype);
  }
  EXPECT_EQ(*state.at("step").integer(), 1000) << where;
  EXPECT_EQ(*state.at("optimizer").dict()->at("lr").number(), 0.5) << where;
  EXPECT_EQ(*state.at("optimizer").dict()->at("betas").tuple()->items.at(1).number(), 0.99) << where;
  EXPECT_EQ(*state.at("names").list()->at(1).text(), "b") << where;
}

struct Format {
  const char* name;
  std::string ending;
  SaveOptions options = {};
};

class CheckpointFormatsTest : public ::testing::TestWithParam<Format> {
 protected:
  CheckpointFormatsTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("formats-{}", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~CheckpointFormatsTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "ck") const { return (folder_ / (name + GetParam().ending)).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    return found;
  }

  fs::path folder_;
};

TEST_P(CheckpointFormatsTest, AnyMeshToAnyMesh) {
  for (int from = 1; from <= 4; ++from) {
    for (int to = 1; to <= 4; ++to) {
      const auto seed = static_cast<uint32_t>(10 * from + to);
      const auto tensors = draw_tensors(seed, 24);
      const std::string where = fmt::format("{}, {} ranks to {}", GetParam().name, from, to);
      spawn(from, [&](World& world) {
        const SaveResult result = save(make_state(tensors, seed, world, true), path(), GetParam().options);
        EXPECT_GT(result.bytes, 0);
      });
      EXPECT_EQ(names(), std::vector<std::string>{"ck" + GetParam().ending}) << where;
      spawn(to, [&](World& world) {
        StateDict state = make_state(tensors, seed + 1000, world, false);
        const LoadResult result = load(state, path());
        EXPECT_TRUE(result.missing.empty() && result.unexpected.empty()) << where;
        expect_filled(state, tensors, where);
      });
      expect_filled(load_state_dict(path()), tensors, where + ", load_state_dict");
    }
  }
}

TEST_P(CheckpointFormatsTest, IntoOtherDtypes) {
  const auto whole = torch::arange(60, torch::kDouble).view({5, 4, 3});
  save({{"w", whole}}, path(), GetParam().options);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kLong}) {
    spawn(3, [&](World&) {
      for (int64_t dim = 0; dim < 3; ++dim) {
        const auto mesh = init_device_mesh("cpu", {3});
        StateDict state{{"w", distribute_tensor(torch::zeros({5, 4, 3}, dtype), mesh, {Shard(dim)})}};
        load(state, path());
        EXPECT_TRUE(full_tensor(*state.at("w").tensor()).equal(whole.to(dtype)));
      }
    });
  }
}

TEST_P(CheckpointFormatsTest, InTheBackgroundAndOverwritten) {
  spawn(2, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    for (double value = 1; value < 4; ++value) {
      const auto tensor = distribute_tensor(torch::full({7, 3}, value), mesh, {Shard(0)});
      SaveFuture future = save_async({{"w", tensor}, {"n", static_cast<int64_t>(value)}}, path(), GetParam().options);
      tensor.zero_();
      future.wait();
      StateDict state{{"w", torch::zeros({7, 3})}, {"n", 0}};
      load(state, path());
      EXPECT_TRUE(state.at("w").tensor()->equal(torch::full({7, 3}, value)));
      EXPECT_EQ(*state.at("n").integer(), static_cast<int64_t>(value));
      barrier(current_world().group());
    }
  });
  EXPECT_EQ(names(), std::vector<std::string>{"ck" + GetParam().ending});
}

TEST_P(CheckpointFormatsTest, TensorsWithoutMemoryGetSome) {
  const auto whole = torch::arange(30.).view({6, 5});
  save({{"plain", whole}, {"sharded", whole}}, path(), GetParam().options);
  spawn(2, [&](World&) {
    const auto mesh = init_device_mesh("meta", {2});
    const auto meta = torch::empty({6, 5}, torch::kMeta);
    const auto local = torch::empty({3, 5}, torch::kMeta);
    StateDict state{{"plain", meta}, {"sharded", from_local(local, mesh, {Shard(0)}, {.shape = Dims{6, 5}})}};
    load(state, path());
    EXPECT_TRUE(meta.equal(whole));  // every handle to it has the memory
    EXPECT_TRUE(full_tensor(*state.at("sharded").tensor()).equal(whole));
  });
}

// They have the memory of another tensor.
TEST_P(CheckpointFormatsTest, ConjugatesAndNegativesThatAreStillToBeComputed) {
  const auto x = torch::complex(torch::arange(3.), torch::arange(3.) + 1);
  const auto conjugate = torch::complex(torch::arange(3.), -torch::arange(3.) - 1);
  const auto negative = torch::imag(x.conj());
  ASSERT_TRUE(x.conj().is_conj() && negative.is_neg());
  const StateTuple tuple{{x.conj(), negative, StateList{x.conj().narrow(0, 1, 1)}, StateDict{{"n", negative}}}};
  save({{"tuple", tuple}, {"list", StateList{StateTuple{{x.conj()}}}}, {"x", x.conj()}, {"n", negative}}, path(),
       GetParam().options);
  const StateDict loaded = load_state_dict(path());
  const auto& items = loaded.at("tuple").tuple()->items;
  EXPECT_TRUE(items[0].tensor()->equal(conjugate)) << *items[0].tensor();
  EXPECT_TRUE(items[1].tensor()->equal(torch::imag(conjugate))) << *items[1].tensor();
  EXPECT_TRUE(items[2].list()->at(0).tensor()->equal(conjugate.narrow(0, 1, 1)));
  EXPECT_TRUE(items[3].dict()->at("n").tensor()->equal(torch::imag(conjugate)));
  const StateList& list = *loaded.at("list").list();
  EXPECT_TRUE(list[0].tuple()->items[0].tensor()->equal(conjugate));
  EXPECT_TRUE(loaded.at("x").tensor()->equal(conjugate));
  EXPECT_TRUE(loaded.at("n").tensor()->equal(torch::imag(conjugate)));
}

TEST_P(CheckpointFormatsTest, DictsByNumberThatOneRankHasStayDicts) {
  spawn(3, [&](World& world) {
    StateDict state{{"all", StateDict{{0, torch::ones({2})}}}};
    const StateDict counted{{0, torch::zeros({2})}, {1, StateDict{{0, "inner"}}}};
    if (world.rank() > 0) state["rank" + std::to_string(world.rank())] = counted;
    save(state, path(), GetParam().options);
  });
  const StateDict loaded = load_state_dict(path());
  EXPECT_NE(loaded.at("all").dict(), nullptr) << loaded.at("all").kind();
  for (const char* key : {"rank1", "rank2"}) {
    ASSERT_NE(loaded.at(key).dict(), nullptr) << key << ": " << loaded.at(key).kind();
    const StateValue& inner = loaded.at(key).dict()->at(1);
    ASSERT_NE(inner.dict(), nullptr) << key << ": " << inner.kind();
    EXPECT_EQ(*inner.dict()->at(0).text(), "inner");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CheckpointFormatsTest,
    ::testing::Values(Format{"dcp", ""}, Format{"compressed", "", {.compress = true}},
                      Format{"safetensors", ".safetensors"},
                      Format{"safetensors_folder", "", {.format = CheckpointFormat::safetensors}},
                      Format{"torch_save", ".pt"},
                      Format{"torch_save_by_name", ".model", {.format = CheckpointFormat::torch_save}}),
    [](const auto& test) { return std::string(test.param.name); });

// The same from file to file.
class RewrittenTest : public CheckpointFormatsTest {};

TEST_P(RewrittenTest, IsTheSameState) {
  const auto tensors = draw_tensors(5, 24);
  spawn(3, [&](World& world) { save(make_state(tensors, 5, world, true), (folder_ / "from").string()); });
  RewriteOptions options;
  options.format = GetParam().options.format;
  options.file_bytes = GetParam().ending.empty() ? 1000 : 0;
  rewrite_checkpoint({(folder_ / "from").string()}, path("to"), options);
  for (int to = 1; to <= 4; ++to) {
    spawn(to, [&](World& world) {
      StateDict state = make_state(tensors, static_cast<uint32_t>(to), world, false);
      load(state, path("to"));
      expect_filled(state, tensors, fmt::format("{} to {} ranks", GetParam().name, to));
    });
  }
  // And back.
  rewrite_checkpoint({path("to")}, (folder_ / "back").string());
  expect_filled(load_state_dict((folder_ / "back").string()), tensors, std::string(GetParam().name) + " and back");
}

INSTANTIATE_TEST_SUITE_P(All, RewrittenTest,
                         ::testing::Values(Format{"safetensors", ".safetensors"},
                                           Format{"indexed", "", {.format = CheckpointFormat::safetensors}},
                                           Format{"torch_save", ".pt"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sherd::testing
