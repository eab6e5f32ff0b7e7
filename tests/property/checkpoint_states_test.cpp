// States that are more than dicts of tensors, and what a save leaves beside its result: nothing.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class CheckpointStatesTest : public ::testing::TestWithParam<const char*> {
 protected:
  CheckpointStatesTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("states-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CheckpointStatesTest() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / (std::string("ck") + GetParam())).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    return found;
  }

  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Formats, CheckpointStatesTest, ::testing::Values("", ".safetensors", ".pt"),
                         [](const auto& test) {
                           const std::string ending = test.param;
                           return ending.empty() ? "folder" : ending.substr(1);
                         });

// A queue by number, with one of its own inside.
class Numbered final : public Stateful {
 public:
  explicit Numbered(double value, std::shared_ptr<Numbered> inner = {}) : value_(value), inner_(std::move(inner)) {}
  StateDict state_dict() const override {
    ++asked;
    StateDict by_number{{int64_t{0}, torch::full({3}, value_)}, {int64_t{1}, value_}};
    StateDict state{{"queue", by_number}, {"list", StateList{torch::full({2}, value_), 1}}};
    if (inner_) state["inner"] = inner_;
    return state;
  }
  void load_state_dict(const StateDict& state) override { value_ = *state.at("queue").dict()->at(int64_t{1}).number(); }
  double value() const { return value_; }
  mutable int asked = 0;

 private:
  double value_;
  std::shared_ptr<Numbered> inner_;
};

TEST_P(CheckpointStatesTest, DictsByNumberInAStatefulStayDicts) {
  spawn(2, [&](World&) {
    const auto inner = std::make_shared<Numbered>(7.0);
    const auto outer = std::make_shared<Numbered>(3.0, inner);
    save({{"many", StateList{outer}}, {"one", StateDict{{"x", inner}}}}, path());
    EXPECT_EQ(outer->asked, 1);
    EXPECT_EQ(inner->asked, 2);  // it stands at two places
  });
  const StateDict loaded = load_state_dict(path());
  const auto expect_kinds = [](const StateValue& value, double number) {
    ASSERT_NE(value.dict(), nullptr);
    const StateDict* queue = value.dict()->at("queue").dict();
    ASSERT_NE(queue, nullptr) << value.dict()->at("queue").kind();
    EXPECT_TRUE(queue->at(int64_t{0}).tensor()->equal(torch::full({3}, number)));
    EXPECT_EQ(*queue->at(int64_t{1}).number(), number);
    EXPECT_NE(value.dict()->at("list").list(), nullptr) << value.dict()->at("list").kind();
  };
  ASSERT_NE(loaded.at("many").list(), nullptr);
  const StateValue& outer = loaded.at("many").list()->at(0);
  expect_kinds(outer, 3.0);
  expect_kinds(outer.dict()->at("inner"), 7.0);
  expect_kinds(loaded.at("one").dict()->at("x"), 7.0);

  spawn(3, [&](World&) {
    const auto inner = std::make_shared<Numbered>(0.0);
    StateDict state{{"many", StateList{std::make_shared<Numbered>(0.0, inner)}},
                    {"one", StateDict{{"x", std::make_shared<Numbered>(0.0)}}}};
    load(state, path());
    EXPECT_EQ(inner->value(), 7.0);
  });
}

TEST_P(CheckpointStatesTest, NoneTakesADictOrAListAsItWasSaved) {
  const StateDict by_number{{int64_t{0}, torch::full({3}, 5.0)}, {int64_t{1}, 6}};
  const StateDict extra{{"by.number", by_number}, {"list", StateList{torch::ones({2}), 1}}, {"text", "x"}};
  save({{"extra", extra}, {"step", 3}}, path());
  spawn(2, [&](World&) {
    StateDict state{{"extra", {}}, {"step", 0}};
    const LoadResult result = load(state, path());
    EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
    const StateDict* found = state.at("extra").dict();
    ASSERT_NE(found, nullptr);
    ASSERT_NE(found->at("by.number").dict(), nullptr);
    EXPECT_EQ(*found->at("by.number").dict()->at(int64_t{1}).integer(), 6);
    ASSERT_NE(found->at("list").list(), nullptr);
    EXPECT_TRUE(found->at("list").list()->at(0).tensor()->equal(torch::ones({2})));
    EXPECT_EQ(*found->at("text").text(), "x");
    // Of a part alone, and what is stored nowhere is still missing.
    StateDict part{{"extra", StateDict{{"list", {}}}}};
    load(part, path());
    EXPECT_EQ(part.at("extra").dict()->at("list").list()->size(), 2U);
    StateDict none{{"extr", {}}};
    EXPECT_THROW(load(none, path()), c10::ValueError);
  });
}

// The state of an optimizer before its first step.
TEST_P(CheckpointStatesTest, AnEmptyContainerTakesWhatIsStoredBelowIt) {
  const StateDict by_number{{int64_t{0}, StateDict{{"m", torch::full({3}, 5.0)}}}, {int64_t{1}, StateDict{{"m", 6}}}};
  save({{"o", StateDict{{"state", by_number}, {"groups", StateList{StateDict{{"lr", 0.5}}}}}}, {"none", StateDict()}},
       path());
  spawn(2, [&](World&) {
    StateDict state{{"o", StateDict{{"state", StateDict()}, {"groups", StateList()}}}, {"none", StateDict()}};
    const StateDict* held = state.at("o").dict()->at("state").dict();
    const LoadResult result = load(state, path());
    EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
    EXPECT_EQ(state.at("o").dict()->at("state").dict(), held);  // whoever has it sees the change
    EXPECT_TRUE(held->at(int64_t{0}).dict()->at("m").tensor()->equal(torch::full({3}, 5.0)));
    EXPECT_EQ(*held->at(int64_t{1}).dict()->at("m").integer(), 6);
    EXPECT_EQ(*state.at("o").dict()->at("groups").list()->at(0).dict()->at("lr").number(), 0.5);
    EXPECT_TRUE(state.at("none").dict()->empty());
    // Stored nowhere: nothing is lost.
    StateDict more{{"other", StateDict()}};
    EXPECT_TRUE(load(more, path()).missing.empty());
    // A list has no names.
    StateDict list{{"o", StateList()}};
    EXPECT_THROW(load(list, path()), c10::ValueError);
  });
}

// A save to one file that ended between its two steps leaves the folder of the first one.
TEST_P(CheckpointStatesTest, TheNextSaveClearsThePartsOfOneThatWasStopped) {
  const bool one_file = *GetParam() != '\0';
  const std::string parts = path() + ".parts";
  save({{"w", torch::zeros({5})}}, parts);
  std::ofstream(parts + "/__7_0.distcp") << "of another world";
  bool gone = false;
  const auto look = [&](const CheckpointProgress&) { gone = gone || !fs::exists(parts); };
  save({{"w", torch::ones({5})}}, path(), {.progress = look});
  EXPECT_EQ(gone, one_file);  // before anything is written: there may be no room for both
  EXPECT_EQ(names().size(), one_file ? 1 : 2);
  EXPECT_TRUE(load_state_dict(path()).at("w").tensor()->equal(torch::ones({5})));
}

}  // namespace
}  // namespace sherd::testing
