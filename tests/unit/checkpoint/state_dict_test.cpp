// States as values: their kinds and order, the names of their leaves, and the way back.

#include "sherd/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

// Compares kinds and values; a tensor is itself.
bool same(const StateValue& a, const StateValue& b);

bool same(const std::vector<StateValue>& a, const std::vector<StateValue>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same(x, y); });
}

bool same(const StateDict& a, const StateDict& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

bool same(const StateValue& a, const StateValue& b) {
  if (a.content().index() != b.content().index()) return false;
  if (a.dict() != nullptr) return same(*a.dict(), *b.dict());
  if (a.list() != nullptr) return same(*a.list(), *b.list());
  if (a.tuple() != nullptr) return same(a.tuple()->items, b.tuple()->items);
  if (a.tensor() != nullptr) return a.tensor()->is_same(*b.tensor());
  if (a.text() != nullptr) return *a.text() == *b.text();
  if (a.boolean() != nullptr) return *a.boolean() == *b.boolean();
  return a.is_none() || a.number() == b.number();
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::ValueError& error) {
    return error.msg();
  }
  return "no error";
}

std::vector<std::string> names_of(const std::vector<FlatLeaf>& leaves) {
  std::vector<std::string> names;
  for (const FlatLeaf& leaf : leaves) names.push_back(leaf.name);
  return names;
}

class Counter final : public Stateful {
 public:
  StateDict state_dict() const override {
    return inner ? StateDict{{"count", count}, {"inner", inner}} : StateDict{{"count", count}};
  }
  void load_state_dict(const StateDict& state) override {
    count = *state.at("count").integer();
    if (log != nullptr) log->push_back(count);
  }
  int64_t count = 0;
  std::shared_ptr<Counter> inner;
  std::vector<int64_t>* log = nullptr;
};

class Empty final : public Stateful {
 public:
  StateDict state_dict() const override { return {}; }
  void load_state_dict(const StateDict& state) override { loads += state.empty() ? 1 : 100; }
  int loads = 0;
};

TEST(StateValueTest, KeepsWhatItIsGiven) {
  EXPECT_TRUE(StateValue().is_none());
  EXPECT_TRUE(*StateValue(true).boolean());
  EXPECT_EQ(StateValue(true).integer(), nullptr);
  EXPECT_EQ(*StateValue(3).integer(), 3);
  EXPECT_EQ(StateValue(3).number(), 3.0);
  EXPECT_EQ(StateValue(0.5F).number(), 0.5);
  EXPECT_EQ(StateValue(true).number(), std::nullopt);
  EXPECT_EQ(*StateValue("text").text(), "text");
  EXPECT_EQ(StateValue(StateList{1, "a"}).list()->size(), 2U);
  EXPECT_EQ(StateValue(StateTuple{{0.9, 0.999}}).tuple()->items.size(), 2U);
  EXPECT_EQ(StateValue(StateTuple{{1}}).list(), nullptr);
  EXPECT_EQ(StateValue(std::make_shared<Counter>()).kind(), "Stateful");
  EXPECT_FALSE((std::is_constructible_v<StateValue, StateDict*>));
}

TEST(StateValueTest, SaysItsKind) {
  EXPECT_EQ(StateValue(StateDict()).kind(), "dict");
  EXPECT_EQ(StateValue(torch::zeros({2, 3})).kind(), "tensor f32[2, 3]");
  EXPECT_EQ(StateValue(at::Tensor()).kind(), "tensor undefined");
  EXPECT_EQ(StateValue(StateBytes{"x"}).kind(), "bytes");
  EXPECT_EQ(StateValue(StateOpaque{"x"}).kind(), "Python object");
  EXPECT_EQ(StateValue(0.5).kind(), "number");
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    EXPECT_EQ(StateValue(zeros({4, 2}, mesh, {Shard(0)})).kind(), "tensor f32[4@dp, 2] on [dp=2]");
    const sharded::ShardedTensor pieces =
        sharded::zeros(sharded::ChunkShardingSpec(0, {"rank:0/cpu", "rank:1/cpu"}), {4, 2});
    EXPECT_EQ(StateValue(pieces).kind(), sharded::to_string(pieces));
  });
}

TEST(StateDictTest, KeepsTheOrderOfKeysAndTheirKinds) {
  StateDict state{{"b", 1}, {5, "five"}, {"a", 2}, {"5", "text five"}};
  EXPECT_EQ(state.size(), 4U);
  EXPECT_EQ(*state.at(5).text(), "five");
  EXPECT_EQ(*state.at("5").text(), "text five");
  EXPECT_TRUE(state.erase("b"));
  EXPECT_FALSE(state.erase("b"));
  EXPECT_TRUE(state["b"].is_none());
  std::vector<StateKey> keys;
  for (const auto& [key, value] : state) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre(StateKey(5), StateKey("a"), StateKey("5"), StateKey("b")));
  EXPECT_EQ(*state.at("a").integer(), 2);
}

TEST(StateDictTest, ReferencesOutliveNewKeys) {
  StateDict state{{"a", "first"}};
  const StateValue& first = state.at("a");
  for (int i = 0; i < 1000; ++i) state[int64_t{i}] = state.at("a");
  EXPECT_EQ(&first, &state.at("a"));
  EXPECT_EQ(*state.at(999).text(), "first");
}

TEST(StateDictTest, ALaterValueOfAKeyTakesTheEarliersPlace) {
  const StateDict state{{"a", 1}, {"b", 2}, {"a", 3}};
  EXPECT_EQ(state.size(), 2U);
  EXPECT_EQ(*state.begin()->second.integer(), 3);
}

TEST(StateDictTest, AMissingKeyIsNamedWithTheOthers) {
  EXPECT_EQ(error_of([] {
              (void)StateDict({{"weight", 1}, {5, 2}}).at("bias");
            }),
            "StateDict::at: the dict has no such key\n"
            "  key: \"bias\"\n"
            "  keys: \"weight\", 5\n"
            "  help: state.find(key) where the key may be missing");
  EXPECT_NE(error_of([] { (void)StateDict().at(1); }).find("  keys: none\n"), std::string::npos);
  StateDict many;
  for (int i = 0; i < 25; ++i) many[int64_t{i}] = i;
  EXPECT_NE(error_of([&] { (void)many.at("x"); }).find("18, 19 and 5 more\n"), std::string::npos);
}

TEST(StateDictTest, CopiesShareContainersAndClonesDoNot) {
  const at::Tensor tensor = torch::ones({2});
  StateDict state{{"d", StateDict{{"t", tensor}}}, {"l", StateList{1, StateTuple{{StateList{2}}}}}};
  const StateDict copy = state;
  const StateDict clone = state.clone();
  (*state.at("d").dict())["more"] = 1;
  (*state.at("l").list())[1].tuple()->items[0].list()->push_back(3);
  EXPECT_TRUE(same(copy, state));
  EXPECT_EQ(clone.at("d").dict()->size(), 1U);
  EXPECT_EQ((*clone.at("l").list())[1].tuple()->items[0].list()->size(), 1U);
  EXPECT_TRUE(clone.at("d").dict()->at("t").tensor()->is_same(tensor));
}

TEST(FlattenTest, DescendsIntoDictsAndIntoListsOfTensors) {
  const at::Tensor t = torch::ones({2});
  const StateDict state{{"a", StateDict{{"b", t}, {5, 1}}},
                        {"numbers", StateList{1, 2, StateList{3}}},
                        {"mixed", StateList{1, StateList{StateList{t}, "x"}}},
                        {"of dicts", StateList{StateDict{{"k", 1}}}},
                        {"tuple", StateTuple{{t, StateDict{{"k", 1}}}}},
                        {"none", {}},
                        {"empty dict", StateDict()},
                        {"empty list", StateList()}};
  const auto leaves = flatten_state_dict(state);
  EXPECT_THAT(names_of(leaves), ElementsAre("a.b", "a.5", "numbers", "mixed.0", "mixed.1.0.0", "mixed.1.1",
                                            "of dicts.0.k", "tuple", "none", "empty dict", "empty list"));
  EXPECT_EQ(leaves[1].path, (StatePath{"a", 5}));
  EXPECT_EQ(leaves[4].path, (StatePath{"mixed", 1, 0, 0}));
  EXPECT_TRUE(same(leaves[2].value, state.at("numbers")));
  EXPECT_TRUE(same(unflatten_state_dict(leaves), StateDict{{"a", StateDict{{"b", t}, {5, 1}}},
                                                           {"numbers", state.at("numbers")},
                                                           {"mixed", state.at("mixed")},
                                                           {"of dicts", state.at("of dicts")},
                                                           {"tuple", state.at("tuple")},
                                                           {"none", {}},
                                                           {"empty dict", StateDict()},
                                                           {"empty list", StateList()}}));
}

TEST(TraverseTest, VisitsEveryLeafInOrderWithItsPath) {
  const at::Tensor t = torch::ones({2});
  const auto inner = std::make_shared<Empty>();
  // Names of leaves may be alike here: only paths are told.
  const StateDict state{
      {"b", StateDict{{"z", t}, {5, 1}}}, {"a.b", 2},          {"a", StateDict{{"b", StateList{StateList{t}, "x"}}}},
      {"numbers", StateList{1, 2}},       {"stateful", inner}, {"none", {}}};
  std::vector<std::string> visited;
  traverse_state_dict(state, [&](const StatePath& path, const StateValue& value) {
    const StateValue* there = get_element(state, path);
    // A Stateful has no paths inside, only what it says.
    const bool is_there = there != nullptr && same(*there, value);
    EXPECT_TRUE(is_there || path.front() == StateKey("stateful")) << to_string(path);
    visited.push_back(to_string(path) + " " + value.kind());
  });
  EXPECT_THAT(visited, ElementsAre("b.z tensor f32[2]", "b.5 integer", "a.b integer", "a.b.0.0 tensor f32[2]",
                                   "a.b.1 text", "numbers list", "stateful dict", "none None"));
  traverse_state_dict({}, [](const StatePath&, const StateValue&) { FAIL(); });
}

TEST(FlattenTest, ACheckpointableCountsAsATensor) {
  const at::Tensor t = torch::ones({2});
  const auto leaves = flatten_state_dict({{"l", StateList{std::shared_ptr<Checkpointable>(checkpointable(t)), 1}}});
  EXPECT_THAT(names_of(leaves), ElementsAre("l.0", "l.1"));
}

TEST(FlattenTest, TwoValuesOfOneNameAreAnError) {
  EXPECT_EQ(error_of([] {
              flatten_state_dict({{"a.b", 1}, {"a", StateDict{{"b", 2}}}});
            }),
            "flatten_state_dict: two values have one name\n"
            "  name: a.b\n"
            "  path: [\"a.b\"]\n"
            "  other path: [\"a\"][\"b\"]\n"
            "  help: keys without dots, or others");
  EXPECT_NE(error_of([] { flatten_state_dict({{5, 1}, {"5", 2}}); }).find("path: [5]\n"), std::string::npos);
}

TEST(FlattenTest, AStatefulIsADictAndGetsItsStateBack) {
  std::vector<int64_t> log;
  const auto inner = std::make_shared<Counter>();
  const auto outer = std::make_shared<Counter>();
  const auto empty = std::make_shared<Empty>();
  outer->inner = inner;
  outer->log = inner->log = &log;
  outer->count = 7;
  inner->count = 8;
  StateDict state{{"list", StateList{outer}}, {"empty", empty}};
  auto leaves = flatten_state_dict(state);
  EXPECT_THAT(names_of(leaves), ElementsAre("list.0.count", "list.0.inner.count", "empty"));
  leaves[0].value = 70;
  leaves[1].value = 80;
  unflatten_state_dict(leaves, state);
  EXPECT_THAT(log, ElementsAre(80, 70));
  EXPECT_EQ(outer->count, 70);
  EXPECT_EQ(inner->count, 80);
  EXPECT_EQ(empty->loads, 1);
  EXPECT_EQ((*state.at("list").list())[0].stateful(), outer.get());
}

TEST(UnflattenTest, NumbersWithoutAGapMakeAListOthersADict) {
  const auto made = [](const std::vector<int64_t>& numbers) {
    std::vector<FlatLeaf> leaves;
    for (const int64_t number : numbers) leaves.push_back({"", {"x", number}, number});
    return unflatten_state_dict(leaves).at("x");
  };
  EXPECT_TRUE(same(made({1, 0, 2}), StateList{0, 1, 2}));
  EXPECT_TRUE(same(made({5, 0}), StateDict{{5, 5}, {0, 0}}));
  EXPECT_TRUE(same(made({int64_t{1} << 60}), StateDict{{int64_t{1} << 60, int64_t{1} << 60}}));
  EXPECT_TRUE(same(made({-1}), StateDict{{-1, -1}}));
}

TEST(UnflattenTest, WhatIsThereKeepsItsKind) {
  StateDict state{{"groups", StateDict{{0, "a"}, {1, "b"}}}, {"list", StateList{1, 2}}, {"kept", 9}};
  unflatten_state_dict({{"", {"groups", 1}, "B"}, {"", {"list", 2}, 3}, {"", {"new", "x"}, 4}}, state);
  EXPECT_TRUE(same(state, StateDict{{"groups", StateDict{{0, "a"}, {1, "B"}}},
                                    {"list", StateList{1, 2, 3}},
                                    {"kept", 9},
                                    {"new", StateDict{{"x", 4}}}}));
}

TEST(UnflattenTest, RefusesPathsThatDoNotFit) {
  const std::string help = "  help: leaves of one state, as flatten_state_dict gives them";
  StateDict state{{"a", 1}};
  EXPECT_EQ(error_of([&] {
              unflatten_state_dict({{"", {"a", "b"}, 1}}, state);
            }),
            "unflatten_state_dict: a path goes through a value that holds nothing\n"
            "  value: [\"a\"]\n  it is: integer\n" +
                help);
  const std::string through =
      "unflatten_state_dict: a path goes through a value that holds nothing\n"
      "  value: [\"x\"]\n  it is: integer\n" +
      help;
  EXPECT_EQ(error_of([] { unflatten_state_dict({{"", {"x"}, 1}, {"", {"x", "b"}, "t"}}); }), through);
  EXPECT_EQ(error_of([] { unflatten_state_dict({{"", {"x", "b"}, "t"}, {"", {"x"}, 1}}); }), through);
  EXPECT_EQ(error_of([] {
              unflatten_state_dict({{"", {"x"}, 1}, {"", {"x"}, 1}});
            }),
            "unflatten_state_dict: two leaves have one path\n  path: [\"x\"]\n" + help);
  EXPECT_EQ(error_of([] {
              unflatten_state_dict({{"name", {}, 1}});
            }),
            "unflatten_state_dict: a leaf has no path\n  name: name\n"
            "  help: a path of at least one key: {\"model\", \"weight\"}");
  StateDict other{{"s", std::make_shared<Counter>()}};
  EXPECT_EQ(error_of([&] {
              unflatten_state_dict({{"", {"s"}, 1}}, other);
            }),
            "unflatten_state_dict: the state of a Stateful is a dict\n  Stateful: [\"s\"]\n  leaf: integer\n" + help);
}

TEST(ElementTest, IsFoundByItsPath) {
  const StateDict state{{"a", StateDict{{5, StateList{1, StateDict{{"k", "v"}}}}}}};
  EXPECT_EQ(*get_element(state, {"a", 5, 1, "k"})->text(), "v");
  EXPECT_EQ(get_element(state, {"a", 5})->list()->size(), 2U);
  EXPECT_EQ(get_element(state, {"a", "5"}), nullptr);
  EXPECT_EQ(get_element(state, {"a", 5, 2}), nullptr);
  EXPECT_EQ(get_element(state, {"a", 5, -1}), nullptr);
  EXPECT_EQ(get_element(state, {"a", 5, 0, 0}), nullptr);
  EXPECT_EQ(get_element(state, {"a", 5, "0"}), nullptr);
  EXPECT_EQ(get_element(state, {}), nullptr);
}

TEST(ElementTest, IsMadeWithWhatLeadsToIt) {
  StateDict state{{"d", StateDict{{1, "one"}}}};
  set_element(state, {"a", "b", 2, "c"}, 1);
  set_element(state, {"a", "b", 0}, "first");
  set_element(state, {"d", 7}, 2);
  EXPECT_TRUE(same(state, StateDict{{"d", StateDict{{1, "one"}, {7, 2}}},
                                    {"a", StateDict{{"b", StateList{"first", {}, StateDict{{"c", 1}}}}}}}));
}

TEST(ElementTest, IsRefusedWhereThePathLeadsThroughAValue) {
  StateDict state{{"a", StateDict{{"n", 1}}}, {"l", StateList{1}}};
  EXPECT_EQ(error_of([&] {
              set_element(state, {"a", "n", "x"}, 2);
            }),
            "set_element: the path goes through something that holds nothing\n"
            "  path: [\"a\"][\"n\"][\"x\"]\n"
            "  [\"a\"][\"n\"]: integer\n"
            "  help: a path through dicts and lists");
  const auto no_place = [](const std::string& place) {
    return "set_element: a list has no such place\n  path: [\"l\"][" + place + "]\n  place: " + place +
           "\n  items: 1\n  help: a number from 0 to the list's size";
  };
  EXPECT_EQ(error_of([&] { set_element(state, {"l", "x"}, 2); }), no_place("\"x\""));
  EXPECT_EQ(error_of([&] { set_element(state, {"l", -1}, 2); }), no_place("-1"));
  EXPECT_EQ(error_of([&] { set_element(state, {"l", int64_t{1} << 40}, 2); }), no_place("1099511627776"));
  EXPECT_EQ(error_of([&] { set_element(state, {}, 2); }),
            "set_element: the path is empty\n  help: a path of at least one key: {\"model\", \"weight\"}");
}

TEST(StatePathTest, IsWrittenWithDots) {
  EXPECT_EQ(to_string(StatePath{"model", "layers", 0, "weight"}), "model.layers.0.weight");
  EXPECT_EQ(to_string(StatePath{}), "");
}

}  // namespace
}  // namespace sherd
