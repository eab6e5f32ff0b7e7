// What data_parallel and fully_shard say when they cannot do what they are asked, on every rank.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;

std::string text_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(DataParallelErrors, AnAxisTwice) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    nn::Linear model(4, 6);
    fully_shard(model, mesh);
    EXPECT_EQ(text_of([&] { data_parallel(model, mesh); }),
              "data_parallel: a parameter is on this axis already\n"
              "  parameter: weight\n"
              "  it is: f32[6@dp, 4] on [dp=2]\n"
              "  data axes: [dp=2]\n"
              "  help: data_parallel once for each module, with an axis of its own");
    EXPECT_EQ(placements_of(model->weight), Placements{Shard(0)});
  });
}

TEST(DataParallelErrors, MeshesThatHaveNothingInCommon) {
  spawn(2, [](World&) {
    nn::Linear model(4, 6);
    distribute_module(model, init_device_mesh("cpu", {2}, {"tp"}));
    EXPECT_EQ(text_of([&] { fully_shard(model, init_device_mesh("cpu", {2}, {"dp"})); }),
              "fully_shard: the parameter's mesh and the data axes are not of one mesh\n"
              "  parameter: weight\n"
              "  it is: f32[6, 4] on [tp=2]\n"
              "  data axes: [dp=2]\n"
              "  help: auto mesh = sherd::init_device_mesh(\"cpu\", {2, 2}, {\"dp\", \"tp\"}); use mesh[\"tp\"] and "
              "mesh[\"dp\"]");
  });
}

TEST(DataParallelErrors, RanksWithDifferentModules) {
  spawn(2, [](World& world) {
    nn::Linear model(4, world.rank() == 0 ? 6 : 8);
    EXPECT_EQ(text_of([&] { data_parallel(model, init_device_mesh("cpu", {2}, {"dp"})); }),
              "data_parallel: the ranks have different modules\n"
              "  rank 0: parameter weight f32[6, 4]\n"
              "  rank 1: parameter weight f32[8, 4]\n"
              "  help: build the same module, with the same options, on every rank of the mesh");
    EXPECT_FALSE(is_dtensor(model->weight));
  });
}

TEST(DataParallelErrors, AUnitThatIsNoModule) {
  spawn(2, [](World&) {
    nn::Sequential model(nn::Linear(4, 6), nn::Linear(6, 4));
    EXPECT_EQ(text_of([&] { fully_shard(model, init_device_mesh("cpu", {2}, {"dp"}), {.units = {"blocks.*"}}); }),
              "fully_shard: no module has this name\n"
              "  unit: blocks.*\n"
              "  modules: 0, 1\n"
              "  help: FullyShardOptions{.units = {\"blocks.*\"}}: names as named_modules() gives them");
    EXPECT_FALSE(is_dtensor(model->parameters()[0]));
  });
}

}  // namespace
}  // namespace sherd::testing
