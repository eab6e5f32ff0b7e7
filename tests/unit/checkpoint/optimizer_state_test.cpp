// The states of optimizers: keys and kinds of Python's, the state before the first step, the three forms, and errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/model_state.h"
#include "sherd/sherd.h"

namespace sherd {
namespace {

using at::Tensor;
using ::testing::ElementsAre;
using torch::optim::Optimizer;

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

struct Kind {
  std::string name;
  MakeOptimizer make;
  std::vector<std::string> state;
  std::vector<std::string> group;
};

template <class O, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](std::vector<Tensor> parameters) { return std::make_unique<O>(std::move(parameters), options); };
}

const std::vector<Kind>& kinds() {
  namespace optim = torch::optim;
  const std::vector<std::string> sgd = {"lr",       "momentum", "dampening",      "weight_decay", "nesterov",
                                        "maximize", "foreach",  "differentiable", "fused",        "params"};
  const std::vector<std::string> adam = {
      "lr",         "betas",          "eps",   "weight_decay",           "amsgrad", "maximize", "foreach",
      "capturable", "differentiable", "fused", "decoupled_weight_decay", "params"};
  static const std::vector<Kind> all = {
      {"SGD", maker<optim::SGD>(optim::SGDOptions(0.1)), {}, sgd},
      {"SGD with momentum",
       maker<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.25)),
       {"momentum_buffer"},
       sgd},
      {"Adam", maker<optim::Adam>(optim::AdamOptions(0.1)), {"step", "exp_avg", "exp_avg_sq"}, adam},
      {"Adam with amsgrad",
       maker<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true)),
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
       adam},
      {"AdamW", maker<optim::AdamW>(optim::AdamWOptions(0.1)), {"step", "exp_avg", "exp_avg_sq"}, adam},
      {"Adagrad",
       maker<optim::Adagrad>(optim::AdagradOptions(0.1).initial_accumulator_value(0.5)),
       {"step", "sum"},
       {"lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "foreach", "maximize", "differentiable",
        "fused", "params"}},
      {"RMSprop",
       maker<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.5).centered(true)),
       {"step", "square_avg", "momentum_buffer", "grad_avg"},
       {"lr", "momentum", "alpha", "eps", "centered", "weight_decay", "capturable", "foreach", "maximize",
        "differentiable", "params"}},
      {"LBFGS",
       maker<optim::LBFGS>(optim::LBFGSOptions(0.1).max_iter(3)),
       {"func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"},
       {"lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size", "line_search_fn",
        "params"}}};
  return all;
}

std::vector<std::string> keys_of(const StateDict& state) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : state) keys.push_back(to_string(StatePath{key}));
  return keys;
}

const StateDict& states_of(const StateDict& state) { return *state.at("state").dict(); }
const StateDict& group_of(const StateDict& state, size_t i = 0) {
  return *state.at("param_groups").list()->at(i).dict();
}

// The same numbers on every rank and in every module.
torch::nn::Sequential make_model() {
  torch::nn::Sequential model(torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 2));
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (Tensor& p : model->parameters()) p.copy_(torch::sin(torch::arange(p.numel()) + (phase += 1)).view(p.sizes()));
  return model;
}

void train(torch::nn::Sequential& model, Optimizer& optimizer, int steps) {
  const Tensor x = torch::cos(torch::arange(32).to(torch::kFloat)).view({8, 4});
  for (int i = 0; i < steps; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      const torch::AutoGradMode grad(true);
      Tensor loss = model->forward(x).pow(2).mean();
      loss.backward();
      return is_dtensor(loss) ? full_tensor(loss) : loss;
    });
  }
}

void expect_same_weights(torch::nn::Sequential& a, torch::nn::Sequential& b) {
  const auto whole = [](const Tensor& t) { return is_dtensor(t) ? full_tensor(t.detach()) : t.detach(); };
  for (size_t i = 0; i < a->parameters().size(); ++i) {
    EXPECT_TRUE(whole(a->parameters()[i]).allclose(whole(b->parameters()[i]), 1e-6, 1e-7));
  }
}

template <class Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(OptimizerStateTest, HasTheKeysOfPython) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    auto model = make_model();
    const auto optimizer = kind.make(model->parameters());
    train(model, *optimizer, 2);
    const StateDict state = get_optimizer_state_dict(*model, *optimizer);
    EXPECT_THAT(keys_of(state), ElementsAre("state", "param_groups"));
    EXPECT_EQ(keys_of(group_of(state)), kind.group);
    EXPECT_EQ(group_of(state).at("params").list()->size(), 4U);
    EXPECT_EQ(*group_of(state).at("params").list()->at(2).text(), "2.weight");
    if (kind.state.empty()) {
      EXPECT_TRUE(states_of(state).empty());
    } else {
      EXPECT_EQ(keys_of(*states_of(state).at("0.weight").dict()), kind.state);
      EXPECT_EQ(states_of(state).size(), kind.name == "LBFGS" ? 1U : 4U);
    }
  }
}

TEST(OptimizerStateTest, HasTheKindsOfPython) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
  train(model, optimizer, 2);
  const StateDict state = get_optimizer_state_dict(*model, optimizer);
  const StateDict& group = group_of(state);
  EXPECT_EQ(group.at("betas").tuple()->items[1].number(), 0.999);
  EXPECT_EQ(*group.at("amsgrad").boolean(), false);
  EXPECT_TRUE(group.at("foreach").is_none());
  EXPECT_FALSE(*group.at("decoupled_weight_decay").boolean());
  const StateDict& weight = *states_of(state).at("0.weight").dict();
  EXPECT_EQ(weight.at("step").kind(), "tensor f32[]");
  EXPECT_EQ(weight.at("step").tensor()->item<float>(), 2);
  const auto& own =
      static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(model->parameters()[0].unsafeGetTensorImpl()));
  EXPECT_EQ(weight.at("exp_avg").tensor()->data_ptr(), own.exp_avg().data_ptr());
}

// Goes through a copy, so that nothing is shared.
StateDict copied(const StateDict& state) {
  std::vector<FlatLeaf> leaves = flatten_state_dict(state);
  for (FlatLeaf& leaf : leaves) {
    if (leaf.value.tensor() != nullptr) leaf.value = leaf.value.tensor()->clone();
  }
  StateDict copy = state.clone();
  unflatten_state_dict(leaves, copy);
  return copy;
}

void expect_goes_on(const Kind& kind, const std::function<StateDict(const StateDict&)>& change,
                    const StateDictOptions& options = {}) {
  SCOPED_TRACE(kind.name);
  auto model = make_model();
  const auto optimizer = kind.make(model->parameters());
  train(model, *optimizer, 2);
  const ModelAndOptimizerState state = get_state_dict(*model, {*optimizer}, options);
  const ModelAndOptimizerState copy = {copied(state.model), change(copied(state.optimizer))};
  train(model, *optimizer, 2);
  auto other = make_model();
  const auto fresh = kind.make(other->parameters());
  EXPECT_EQ(set_state_dict(*other, {*fresh}, copy), IncompatibleKeys());
  train(other, *fresh, 2);
  expect_same_weights(model, other);
}

TEST(OptimizerStateTest, TrainingGoesOn) {
  for (const Kind& kind : kinds()) expect_goes_on(kind, [](const StateDict& state) { return state; });
}

TEST(OptimizerStateTest, TrainingGoesOnFromTheFlatForm) {
  for (const Kind& kind : kinds()) {
    if (kind.name == "LBFGS") continue;
    expect_goes_on(kind, [](const StateDict& state) { return state; }, {.flatten_optimizer_state_dict = true});
  }
}

// torch.optim's own form.
StateDict with_numbers(const StateDict& state, bool texts) {
  StateDict numbered{{"state", StateDict()}, {"param_groups", StateList{group_of(state)}}};
  StateList params;
  int64_t number = 0;
  for (const StateValue& name : *group_of(state).at("params").list()) {
    const StateValue* found = states_of(state).find(*name.text());
    const StateKey key = texts ? StateKey(std::to_string(number)) : StateKey(number);
    if (found != nullptr) (*numbered["state"].dict())[key] = *found;
    params.emplace_back(number++);
  }
  (*numbered["param_groups"].list()->at(0).dict())["params"] = params;
  return numbered;
}

TEST(OptimizerStateTest, TrainingGoesOnFromTheNumbersOfTorch) {
  for (const Kind& kind : kinds()) {
    expect_goes_on(kind, [](const StateDict& state) { return with_numbers(state, false); });
    expect_goes_on(kind, [](const StateDict& state) { return with_numbers(state, true); });
  }
}

TEST(OptimizerStateTest, GettingAStateBeforeTheFirstStepChangesNothing) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    auto model = make_model();
    auto other = make_model();
    const auto optimizer = kind.make(model->parameters());
    const auto asked = kind.make(other->parameters());
    const StateDict state = get_optimizer_state_dict(*other, *asked);
    if (kind.name == "LBFGS") {
      // What a step makes is None, for which load() takes what is stored.
      std::vector<std::string> made;
      for (const auto& [key, value] : *states_of(state).at("0.weight").dict()) {
        if (!value.is_none()) made.push_back(to_string(StatePath{key}));
      }
      EXPECT_THAT(made, ElementsAre("func_evals", "n_iter"));
    } else if (!kind.state.empty()) {
      EXPECT_EQ(keys_of(*states_of(state).at("0.weight").dict()), kind.state);
    }
    expect_same_weights(model, other);
    train(model, *optimizer, 2);
    train(other, *asked, 2);
    expect_same_weights(model, other);
  }
}

TEST(OptimizerStateTest, WhatIsLoadedIntoTheStateOfAFreshOptimizerIsThere) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
  train(model, optimizer, 2);
  const StateDict saved = copied(get_optimizer_state_dict(*model, optimizer));
  auto other = make_model();
  torch::optim::Adam fresh(other->parameters(), torch::optim::AdamOptions(0.7));
  StateDict state = get_optimizer_state_dict(*other, fresh);
  std::vector<FlatLeaf> from = flatten_state_dict(saved);
  std::vector<FlatLeaf> to = flatten_state_dict(state);
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {  // as load() does
    EXPECT_EQ(from[i].name, to[i].name);
    if (to[i].value.tensor() != nullptr) {
      to[i].value.tensor()->copy_(*from[i].value.tensor());
    } else {
      to[i].value = from[i].value;
    }
  }
  unflatten_state_dict(to, state);
  set_model_state_dict(*other, get_model_state_dict(*model));
  set_optimizer_state_dict(*other, fresh, state);
  train(model, optimizer, 1);
  train(other, fresh, 1);
  expect_same_weights(model, other);
}

TEST(OptimizerStateTest, DistributedParametersHaveDistributedStates) {
  const auto cut = [](torch::nn::Sequential& model) {
    distribute_module(*model, init_device_mesh("cpu", {2}, {"dp"}), [](const std::string& name, const Tensor&) {
      Placements placements;
      if (name == "2.bias") {
        placements.emplace_back(Replicate());
      } else {
        placements.emplace_back(Shard(0));
      }
      return placements;
    });
  };
  spawn(2, [&](World& world) {
    for (const Kind& kind : kinds()) {
      if (kind.name == "LBFGS") continue;  // its vectors are of all parameters at once
      SCOPED_TRACE(kind.name);
      auto plain = make_model();
      const auto reference = kind.make(plain->parameters());
      train(plain, *reference, 3);

      auto model = make_model();
      cut(model);
      const auto optimizer = kind.make(model->parameters());
      train(model, *optimizer, 2);
      const StateDict parts = get_optimizer_state_dict(*model, *optimizer);
      if (!kind.state.empty()) {
        EXPECT_EQ(is_dtensor(*states_of(parts).at("0.weight").dict()->at(kind.state.back()).tensor()), true);
      }
      const StateDictOptions full{.full_state_dict = true};
      const ModelAndOptimizerState whole = get_state_dict(*model, {*optimizer}, full);
      for (const FlatLeaf& leaf : flatten_state_dict(whole.optimizer)) {
        EXPECT_FALSE(leaf.value.tensor() != nullptr && is_dtensor(*leaf.value.tensor())) << leaf.name;
      }
      const ModelAndOptimizerState first =
          get_state_dict(*model, {*optimizer}, {.full_state_dict = true, .cpu_offload = true});
      EXPECT_EQ(first.optimizer.empty(), world.rank() != 0);

      const auto expect_goes = [&](const ModelAndOptimizerState& state, const StateDictOptions& options) {
        auto other = make_model();
        cut(other);
        const auto fresh = kind.make(other->parameters());
        set_state_dict(*other, {*fresh}, state, options);
        train(other, *fresh, 1);
        expect_same_weights(plain, other);
      };
      expect_goes({get_model_state_dict(*model), parts}, {});
      expect_goes(whole, full);
      expect_goes(first, {.full_state_dict = true, .broadcast_from_rank0 = true});
    }
  });
}

TEST(OptimizerStateTest, RankZeroSharesOutTheVectorsOfLbfgs) {
  spawn(2, [](World& world) {
    const Kind& kind = kinds().back();
    auto model = make_model();
    const auto optimizer = kind.make(model->parameters());
    train(model, *optimizer, 2);
    const ModelAndOptimizerState state =
        get_state_dict(*model, {*optimizer}, {.full_state_dict = true, .cpu_offload = true});
    EXPECT_EQ(state.optimizer.empty(), world.rank() != 0);
    auto other = make_model();
    const auto fresh = kind.make(other->parameters());
    const StateDict model_copy = world.rank() == 0 ? copied(state.model) : StateDict();
    const StateDict optimizer_copy = world.rank() == 0 ? copied(state.optimizer) : StateDict();
    set_state_dict(*other, {*fresh}, {model_copy, optimizer_copy},
                   {.full_state_dict = true, .broadcast_from_rank0 = true});
    train(model, *optimizer, 1);
    train(other, *fresh, 1);
    expect_same_weights(model, other);
  });
}

TEST(OptimizerStateTest, SeveralOptimizersAreOne) {
  const auto make = [](torch::nn::Sequential& model) {
    const auto p = model->parameters();
    return std::pair(
        std::make_unique<torch::optim::Adam>(std::vector<Tensor>{p[0], p[1]}),
        std::make_unique<torch::optim::SGD>(
            std::vector<torch::optim::OptimizerParamGroup>{
                std::vector<Tensor>{p[2]},
                {{p[3]}, std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.01).momentum(0.5))}},
            torch::optim::SGDOptions(0.1).momentum(0.9)));
  };
  auto model = make_model();
  const auto [adam, sgd] = make(model);
  train(model, *adam, 1);
  train(model, *sgd, 1);
  const StateDict state = copied(get_optimizer_state_dict(*model, {*adam, *sgd}));
  EXPECT_EQ(state.at("param_groups").list()->size(), 3U);
  EXPECT_THAT(keys_of(states_of(state)), ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  auto other = make_model();
  const auto [adam2, sgd2] = make(other);
  for (auto& group : sgd2->param_groups()) group.options().set_lr(7);
  EXPECT_EQ(set_optimizer_state_dict(*other, {*sgd2, *adam2}, state), IncompatibleKeys());
  EXPECT_EQ(sgd2->param_groups()[0].options().get_lr(), 0.1);
  EXPECT_EQ(sgd2->param_groups()[1].options().get_lr(), 0.01);
  // One of them alone takes its own and says what it left.
  EXPECT_EQ(set_optimizer_state_dict(*other, *sgd2, state).unexpected,
            (std::vector<std::string>{"state.0.weight", "state.0.bias"}));
}

TEST(OptimizerStateTest, ASharedParameterGoesByAnyOfItsNames) {
  torch::nn::Linear one(2, 2);
  torch::nn::Sequential twice(one, one);
  torch::optim::Adam optimizer(one->parameters());
  StateDict state = copied(get_optimizer_state_dict(*twice, optimizer));
  EXPECT_THAT(keys_of(states_of(state)), ElementsAre("0.weight", "0.bias"));
  StateDict& states = *state["state"].dict();
  states["1.weight"] = states.at("0.weight");
  states.erase("0.weight");
  states["1.weight"].dict()->at("step").tensor()->fill_(9);
  (*state["param_groups"].list())[0].dict()->at("params").list()->at(0) = "1.weight";
  set_optimizer_state_dict(*twice, optimizer, state);
  EXPECT_EQ(static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(one->weight.unsafeGetTensorImpl())).step(),
            9);
}

TEST(OptimizerStateTest, WhatPythonHasBesideIsToldNotRefused) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters());
  StateDict state = copied(get_optimizer_state_dict(*model, optimizer));
  StateDict& group = *(*state["param_groups"].list())[0].dict();
  group["initial_lr"] = 0.1;
  group["foreach"] = true;
  group["lr"] = torch::tensor(0.25);
  group["betas"] = StateList{0.5, 0.75};
  group.erase("decoupled_weight_decay");  // of an older PyTorch
  const IncompatibleKeys keys = set_optimizer_state_dict(*model, optimizer, state);
  EXPECT_EQ(keys, (IncompatibleKeys{{}, {"param_groups.0.initial_lr"}}));
  const auto& options = static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.75));
}

TEST(OptimizerStateTest, WhatLibtorchCannotDoIsRefused) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters());
  StateDict state = get_optimizer_state_dict(*model, optimizer);
  (*(*state["param_groups"].list())[0].dict())["maximize"] = true;
  EXPECT_EQ(error_of<c10::ValueError>([&] { set_optimizer_state_dict(*model, optimizer, state); }),
            "set_optimizer_state_dict: libtorch's optimizer cannot do what the state's did\n"
            "  optimizer: Adam\n"
            "  option: param_groups.0.maximize\n"
            "  state: true\n"
            "  help: an optimizer that does the same in both");
  torch::optim::AdamW decoupled(model->parameters());
  EXPECT_NE(error_of<c10::ValueError>([&] {
              set_optimizer_state_dict(*model, optimizer, get_optimizer_state_dict(*model, decoupled));
            }).find("option: param_groups.0.decoupled_weight_decay"),
            std::string::npos);
}

TEST(OptimizerStateTest, WhatIsMissingIsAnErrorUnlessNotStrict) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
  const StateDict state = copied(get_optimizer_state_dict(*model, optimizer));
  optimizer.param_groups()[0].options().set_lr(0.5);
  const auto without = [&](const StatePath& path) {
    StateDict less = state.clone();
    const StatePath parent(path.begin(), path.end() - 1);
    get_element(less, parent)->dict()->erase(path.back());
    return less;
  };
  const auto expect_missing = [&](const StatePath& path) {
    const std::string name = to_string(path);
    EXPECT_EQ(error_of<c10::Error>([&] { set_optimizer_state_dict(*model, optimizer, without(path)); }),
              "set_optimizer_state_dict: the state lacks what the optimizer needs\n  missing: " + name +
                  "\n  help: {.strict = false} to keep what the optimizer has");
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
    EXPECT_EQ(set_optimizer_state_dict(*model, optimizer, without(path), {.strict = false}),
              (IncompatibleKeys{{name}, {}}));
    optimizer.param_groups()[0].options().set_lr(0.5);
  };
  expect_missing({"state", "2.bias"});
  expect_missing({"state", "2.bias", "exp_avg"});
  expect_missing({"param_groups", 0, "lr"});
}

TEST(OptimizerStateTest, ValuesThatDoNotFitAreNamed) {
  auto model = make_model();
  torch::optim::Adam optimizer(model->parameters());
  const StateDict state = get_optimizer_state_dict(*model, optimizer);
  const auto with = [&](const StatePath& path, const StateValue& value) {
    StateDict other = state.clone();
    set_element(other, path, value);
    return error_of<c10::ValueError>([&] { set_optimizer_state_dict(*model, optimizer, other); });
  };
  EXPECT_EQ(with({"state", "0.bias", "exp_avg"}, torch::zeros({7})),
            "set_optimizer_state_dict: a value does not fit its parameter\n"
            "  name: state.0.bias.exp_avg\n"
            "  parameter: tensor f32[6]\n"
            "  state: tensor f32[7]\n"
            "  help: a state of the same module");
  EXPECT_EQ(with({"param_groups", 0, "betas"}, "often"),
            "set_optimizer_state_dict: a value does not fit\n"
            "  name: param_groups.0.betas\n"
            "  because: set_optimizer_state_dict: a value is of another kind\n"
            "      expected: two numbers\n"
            "      it is: text\n"
            "      help: a state of the same optimizer\n"
            "  help: a state of the same optimizer");
  EXPECT_NE(with({"state", "0.bias", "step"}, 1.5).find("expected: a whole number"), std::string::npos);
  EXPECT_NE(with({"param_groups", 0, "amsgrad"}, 1).find("expected: a bool"), std::string::npos);
  EXPECT_NE(with({"param_groups"}, 1).find("the state has no list of groups"), std::string::npos);
  EXPECT_NE(with({"param_groups", 0, "params"}, 1).find("a group has no list of its parameters"), std::string::npos);
}

TEST(OptimizerStateTest, GroupsMustBeThoseThatWereSaved) {
  auto model = make_model();
  const auto p = model->parameters();
  torch::optim::SGD two(
      std::vector<torch::optim::OptimizerParamGroup>{std::vector<Tensor>{p[0], p[1]}, std::vector<Tensor>{p[2], p[3]}},
      torch::optim::SGDOptions(0.1));
  torch::optim::SGD one(p, torch::optim::SGDOptions(0.1));
  EXPECT_EQ(
      error_of<c10::ValueError>([&] { set_optimizer_state_dict(*model, one, get_optimizer_state_dict(*model, two)); }),
      "set_optimizer_state_dict: parameters of one group were saved in several\n"
      "  parameter: 2.weight\n"
      "  help: an optimizer with the groups that were saved");
  StateDict numbers = get_optimizer_state_dict(*model, one);
  (*(*numbers["param_groups"].list())[0].dict())["params"] = StateList{0, 1, 2, 3};
  EXPECT_EQ(error_of<c10::ValueError>([&] { set_optimizer_state_dict(*model, two, numbers); }),
            "set_optimizer_state_dict: the state has another number of groups\n"
            "  optimizer: 2\n"
            "  state: 1\n"
            "  help: an optimizer with the groups that were saved");
  // Each parameter says for itself what its options were.
  const StateDictOptions flat{.flatten_optimizer_state_dict = true};
  two.param_groups()[1].options().set_lr(0.5);
  EXPECT_NE(error_of<c10::Error>([&] {
              set_optimizer_state_dict(*model, one, get_optimizer_state_dict(*model, two, flat));
            }).find("parameters of one group have different options"),
            std::string::npos);
}

TEST(OptimizerStateTest, ListsHaveNoFlatForm) {
  auto model = make_model();
  const auto optimizer = kinds().back().make(model->parameters());
  train(model, *optimizer, 2);
  EXPECT_EQ(error_of<c10::NotImplementedError>(
                [&] { get_optimizer_state_dict(*model, *optimizer, {.flatten_optimizer_state_dict = true}); }),
            "get_optimizer_state_dict: a state that is no tensor has no flat form\n"
            "  name: state.0.weight.al\n"
            "  it is: list\n"
            "  help: {.flatten_optimizer_state_dict = false}");
}

class Unknown final : public Optimizer {
 public:
  explicit Unknown(std::vector<Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  Tensor step(LossClosure) override { return {}; }
};

TEST(OptimizerStateTest, AnOptimizerOfAnotherClassIsRefused) {
  auto model = make_model();
  Unknown optimizer(model->parameters());
  EXPECT_EQ(error_of<c10::NotImplementedError>([&] { get_optimizer_state_dict(*model, optimizer); }),
            "get_optimizer_state_dict: the optimizer is of a class that is not known\n"
            "  known: SGD, Adam, Adagrad, AdamW, RMSprop, LBFGS\n"
            "  help: save its state by a sherd::Stateful of your own");
  torch::optim::SGD other(make_model()->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_EQ(error_of<c10::ValueError>([&] { get_optimizer_state_dict(*model, other); }),
            "get_optimizer_state_dict: the module has not all parameters of the optimizer\n"
            "  parameter: tensor f32[6, 4]\n"
            "  help: the module whose parameters the optimizer was made of");
  EXPECT_EQ(error_of<c10::Error>([&] { get_optimizer_state_dict(*model, Optimizers{}); }),
            "get_optimizer_state_dict: there is no optimizer\n  help: get_model_state_dict for a module alone");
}

}  // namespace
}  // namespace sherd
