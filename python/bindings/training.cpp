// What a training loop of Python needs beside its modules: scopes, recomputation, averages, samples, experts.

#include "bindings.h"
#include "sherd/context_parallel.h"
#include "sherd/ema.h"
#include "sherd/expert_parallel.h"
#include "sherd/local_map.h"
#include "sherd/loss_parallel.h"
#include "sherd/recompute.h"
#include "sherd/sharded_data.h"
#include "sherd/sharded_init.h"

namespace sherd::python {
namespace {

// A C++ scope for `with`; it may be entered again inside.
template <class Guard, class... Arguments>
class Scope {
 public:
  explicit Scope(Arguments... arguments) : arguments_(std::move(arguments)...) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  void enter() {
    guards_.push_back(std::apply([](const auto&... each) { return std::make_unique<Guard>(each...); }, arguments_));
  }
  void exit() { guards_.pop_back(); }

 private:
  std::tuple<Arguments...> arguments_;
  std::vector<std::unique_ptr<Guard>> guards_;
};

template <class T>
py::class_<T> scope_class(py::module_& module, const char* name) {
  return py::class_<T>(module, name)
      .def(
          "__enter__",
          [](T& self) -> T& {
            self.enter();
            return self;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](T& self, const py::args&) { self.exit(); });
}

using LossScope = Scope<LossParallel>;
using ContextScope = Scope<ContextParallel, DeviceMesh, ContextParallelOptions>;
using InitScope = Scope<ShardedInit, DeviceMesh>;

// The parts of local_map that Python calls in turn; detail::LocalMapCall refers to what it is made of.
struct LocalMap {
  DeviceMesh mesh;
  PlacementsOfEach in, out;
  LocalMapOptions options;
  detail::LocalMapCall call{mesh, in, out, options};

  LocalMap(DeviceMesh on, PlacementsOfEach inputs, PlacementsOfEach outputs, bool redistribute, PlacementsOfEach grads)
      : mesh(std::move(on)),
        in(std::move(inputs)),
        out(std::move(outputs)),
        options{.redistribute_inputs = redistribute, .in_grad_placements = std::move(grads)} {}
  LocalMap(const LocalMap&) = delete;
  LocalMap& operator=(const LocalMap&) = delete;
};

}  // namespace

void bind_training(py::module_& module) {
  scope_class<LossScope>(module, "LossParallel").def(py::init<>());
  scope_class<InitScope>(module, "ShardedInit").def(py::init<DeviceMesh>(), py::arg("device_mesh"));
  scope_class<ContextScope>(module, "ContextParallel").def(py::init([](const DeviceMesh& axis, bool ring) {
    using Method = ContextParallelOptions::Method;
    return std::make_unique<ContextScope>(axis, ContextParallelOptions{ring ? Method::ring : Method::all_to_all});
  }));
  module.def("balanced_shard", &balanced_shard, py::arg("dim"), py::arg("length"), py::arg("ranks"));
  module.def("context_parallel_shard", &context_parallel_shard, py::arg("tensor"), py::arg("axis"), py::arg("dim"),
             ReleaseGil());

  module.def(
      "recompute",
      [](detail::TensorsFunction fn, const std::vector<at::Tensor>& inputs) {
        return detail::recompute_list(std::move(fn), inputs);
      },
      ReleaseGil());
  py::class_<LocalMap>(module, "LocalMap")
      .def(py::init<DeviceMesh, PlacementsOfEach, PlacementsOfEach, bool, PlacementsOfEach>())
      .def("check_arguments", [](const LocalMap& self, size_t count) { self.call.check_arguments(count); })
      .def("check_results", [](const LocalMap& self, size_t count) { self.call.check_results(count); })
      .def("check_other", [](const LocalMap& self, size_t i) { self.call.check_other(i); })
      .def(
          "local_input",
          [](const LocalMap& self, const at::Tensor& tensor, size_t i) { return self.call.local_input(tensor, i); },
          ReleaseGil())
      .def(
          "global_result",
          [](const LocalMap& self, const at::Tensor& local, size_t i) { return self.call.global_result(local, i); },
          ReleaseGil());

  py::class_<ExponentialMovingAverage>(module, "ExponentialMovingAverage")
      .def(py::init<std::vector<at::Tensor>, double>())
      .def("update", &ExponentialMovingAverage::update)
      .def_property("updates", &ExponentialMovingAverage::updates, &ExponentialMovingAverage::set_updates)
      .def_property_readonly("decay", &ExponentialMovingAverage::decay)
      .def_property_readonly("averages", &ExponentialMovingAverage::averages)
      .def(
          "applied",
          [](ExponentialMovingAverage& self) { return std::make_unique<ExponentialMovingAverage::Applied>(self); },
          py::keep_alive<0, 1>());
  py::class_<ExponentialMovingAverage::Applied>(module, "AppliedAverages");

  py::class_<ShardedSampler>(module, "ShardedSampler")
      .def(py::init([](size_t size, int64_t ranks, int64_t rank, uint64_t seed, bool shuffle, bool drop) {
        return ShardedSampler(size, ranks, rank,
                              {.seed = seed, .shuffle = shuffle, .rest = drop ? UnevenRest::drop : UnevenRest::pad});
      }))
      .def("reset", [](ShardedSampler& self) { self.reset(); })
      .def("next", &ShardedSampler::next)
      .def("state",
           [](const ShardedSampler& self) {
             const auto state = self.state();
             return std::pair(state.epoch, state.taken);
           })
      .def("set_state", [](ShardedSampler& self, uint64_t epoch, uint64_t taken) {
        self.set_state({epoch, taken});
      });

  py::class_<ExpertBatch>(module, "ExpertBatch")
      .def_readonly("tokens", &ExpertBatch::tokens)
      .def_readonly("offsets", &ExpertBatch::offsets)
      .def_readonly("first_expert", &ExpertBatch::first_expert)
      .def_readonly("parameters", &ExpertBatch::parameters)
      .def("__len__", &ExpertBatch::experts)
      .def("tokens_of", &ExpertBatch::tokens_of, py::arg("expert"));
  module.def(
      "expert_parallel",
      [](const at::Tensor& tokens, const at::Tensor& chosen, const at::Tensor& weights, const DeviceMesh& axis,
         int64_t count, std::function<at::Tensor(const ExpertBatch&)> run, std::vector<at::Tensor> parameters,
         std::optional<int64_t> capacity) {
        return expert_parallel(tokens, chosen, weights, axis, {count, std::move(run), std::move(parameters)},
                               {capacity});
      },
      ReleaseGil());
}

}  // namespace sherd::python
