// ShardedTensors whose shards are ShardedTensors: flat ones of the same memory.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/model_state.h"
#include "sherd/sherd.h"

namespace sherd {
namespace {

using at::Tensor;
using sharded::ShardedTensor;

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kFloat).view(shape);
}

sharded::GroupOptions ranks(std::vector<int64_t> list) {
  sharded::GroupOptions options;
  options.ranks = std::move(list);
  return options;
}

ShardedTensor in_one(const Tensor& piece, const Dims& offsets, const Dims& size, int64_t rank,
                     const std::vector<int64_t>& list) {
  return sharded::init_from_local_shards({sharded::Shard::from_tensor_and_offsets(piece, offsets, rank)}, size,
                                         ranks(list));
}

// Rows between the halves of the ranks, columns between the quarters ...
struct Cut {
  Tensor nested;
  Tensor piece;  // this rank's memory
};

// Ranks 0-3: pairs (0, 1) and (2, 3) cut rows, the ranks of a pair columns.
Cut two_levels(const Tensor& whole, int64_t rank) {
  const int64_t pair = rank / 2;
  const int64_t side = rank % 2;
  const int64_t rows = whole.size(0) / 2;
  const int64_t columns = whole.size(1) / 2;
  const Tensor piece = whole.narrow(0, rows * pair, rows).narrow(1, columns * side, columns).clone();
  const ShardedTensor inner = in_one(piece, {0, columns * side}, {rows, whole.size(1)}, rank, {2 * pair, 2 * pair + 1});
  return {in_one(inner, {rows * pair, 0}, whole.sizes().vec(), rank, {side, side + 2}), piece};
}

void expect_flat(const Tensor& tensor, const Tensor& whole, const Cut& cut, size_t shards) {
  const ShardedTensor flat(tensor);
  EXPECT_EQ(flat.metadata().shards_metadata.size(), shards);
  ASSERT_EQ(flat.local_shards().size(), 1U);
  EXPECT_EQ(flat.local_shards()[0].tensor.data_ptr(), cut.piece.data_ptr());
  EXPECT_EQ(flat.local_shards()[0].metadata.placement->rank, current_world().rank());
  const Tensor out = flat.group()->rank() == 0 ? torch::empty(whole.sizes()) : Tensor();
  flat.gather(0, out.defined() ? std::optional(out) : std::nullopt);
  if (out.defined()) {
    EXPECT_TRUE(out.equal(whole));
  }
}

TEST(FlattenShardedTest, TwoLevelsBecomeOne) {
  spawn(4, [](World& world) {
    const Tensor whole = numbers({4, 6});
    const Cut cut = two_levels(whole, world.rank());
    const Tensor plain = torch::ones({2});
    const StateDict state{{"model", StateDict{{"w", cut.nested}, {"p", plain}}}, {"list", StateList{cut.nested, 7}}};
    const StateDict flat = flatten_sharded_tensors(state);
    expect_flat(*get_element(flat, {"model", "w"})->tensor(), whole, cut, 4);
    expect_flat(*get_element(flat, {"list", 0})->tensor(), whole, cut, 4);
    EXPECT_TRUE(get_element(flat, {"model", "p"})->tensor()->is_same(plain));
    EXPECT_EQ(*get_element(flat, {"list", 1})->integer(), 7);
    EXPECT_TRUE(get_element(state, {"model", "w"})->tensor()->is_same(cut.nested));
  });
}

TEST(FlattenShardedTest, ThreeLevelsToo) {
  // The pairs of ranks (0, 1), (2, 3) ... inside halves of four: rows of 8, columns, and planes.
  spawn(8, [](World& world) {
    const Tensor whole = numbers({4, 4, 6});
    const int64_t half = world.rank() / 4;
    const int64_t pair = world.rank() / 2 % 2;
    const int64_t side = world.rank() % 2;
    const Tensor piece = whole.narrow(0, 2 * half, 2).narrow(1, 2 * pair, 2).narrow(2, 3 * side, 3).clone();
    const int64_t first = 4 * half + 2 * pair;
    const ShardedTensor innermost = in_one(piece, {0, 0, 3 * side}, {2, 2, 6}, world.rank(), {first, first + 1});
    const ShardedTensor inner =
        in_one(innermost, {0, 2 * pair, 0}, {2, 4, 6}, world.rank(), {4 * half + side, 4 * half + 2 + side});
    const Cut cut{in_one(inner, {2 * half, 0, 0}, {4, 4, 6}, world.rank(), {world.rank() % 4, world.rank() % 4 + 4}),
                  piece};
    const StateDict flat = flatten_sharded_tensors({{"w", cut.nested}});
    expect_flat(*flat.at("w").tensor(), whole, cut, 8);
  });
}

TEST(FlattenShardedTest, AnyGroupAndAnyNames) {
  // Ranks 1-4 of six, without rank 0; another tensor on all of them, in one level.
  spawn(6, [](World& world) {
    const Tensor whole = numbers({4, 6});
    const int64_t rank = world.rank();
    if (rank == 0 || rank == 5) return;
    const int64_t pair = (rank - 1) / 2;
    const int64_t side = (rank - 1) % 2;
    const Tensor piece = whole.narrow(0, 2 * pair, 2).narrow(1, 3 * side, 3).clone();
    const ShardedTensor inner = in_one(piece, {0, 3 * side}, {2, 6}, rank, {2 * pair + 1, 2 * pair + 2});
    const Cut cut{in_one(inner, {2 * pair, 0}, {4, 6}, rank, {side + 1, side + 3}), piece};
    const Tensor simple = in_one(torch::ones({2}), {2 * (rank - 1)}, {8}, rank, {1, 2, 3, 4});
    const StateDict flat = flatten_sharded_tensors({{"w", cut.nested}, {"s", simple}}, world.group({1, 2, 3, 4}));
    expect_flat(*flat.at("w").tensor(), whole, cut, 4);
    EXPECT_EQ(ShardedTensor(*flat.at("w").tensor()).ranks(), (std::vector<int64_t>{1, 2, 3, 4}));
    EXPECT_TRUE(flat.at("s").tensor()->is_same(simple));
  });
}

TEST(FlattenShardedTest, ShardsThatDoNotTileAreAnErrorOnAll) {
  spawn(4, [](World& world) {
    const Cut cut = two_levels(numbers({4, 6}), world.rank());
    // Half of the ranks that hold the tensor.
    const Group pair = world.group(world.rank() < 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3});
    try {
      (void)flatten_sharded_tensors({{"w", cut.nested}}, pair);
      ADD_FAILURE() << "no error";
    } catch (const c10::ValueError& error) {
      const std::string text = error.what_without_backtrace();
      EXPECT_NE(text.find("flatten_sharded_tensors: 2 of 2 ranks failed"), std::string::npos) << text;
      EXPECT_NE(text.find("name: [\"w\"]"), std::string::npos) << text;
    }
  });
}

class Holder final : public Stateful {
 public:
  explicit Holder(Tensor tensor) : tensor_(std::move(tensor)) {}
  StateDict state_dict() const override { return {{"t", tensor_}}; }
  void load_state_dict(const StateDict&) override {}

 private:
  Tensor tensor_;
};

TEST(FlattenShardedTest, StatefulsBecomeDicts) {
  spawn(4, [](World& world) {
    const Tensor whole = numbers({2, 2});
    const Cut cut = two_levels(whole, world.rank());
    const StateDict flat = flatten_sharded_tensors({{"s", std::make_shared<Holder>(cut.nested)}});
    expect_flat(*get_element(flat, {"s", "t"})->tensor(), whole, cut, 4);
  });
}

struct OneImpl : torch::nn::Module {
  explicit OneImpl(const Tensor& tensor) { weight = register_parameter("weight", tensor, false); }
  Tensor weight;
};

TEST(NestedStateTest, RankZeroSharesOutAndTakesBack) {
  spawn(4, [](World& world) {
    const Cut cut = two_levels(torch::zeros({4, 6}), world.rank());
    OneImpl module(cut.nested);
    const Tensor whole = numbers({4, 6});
    const StateDict state = world.rank() == 0 ? StateDict{{"weight", whole}} : StateDict();
    set_model_state_dict(module, state, {.full_state_dict = true, .broadcast_from_rank0 = true});
    const Tensor all = *get_model_state_dict(module, {.full_state_dict = true}).at("weight").tensor();
    EXPECT_TRUE(all.equal(whole));
    const StateDict first = get_model_state_dict(module, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(first.empty(), world.rank() != 0);
    if (world.rank() == 0) {
      EXPECT_TRUE(first.at("weight").tensor()->equal(whole));
    }
  });
}

}  // namespace
}  // namespace sherd
