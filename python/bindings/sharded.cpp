// ShardedTensors: ordinary tensors of Python, and the functions on them.

#include "sharded.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/SafePyObject.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "bindings.h"
#include "sherd/sharded_modules.h"
#include "sherd/sharded_tensor.h"

namespace sherd::python {
namespace {

using at::Tensor;
using sharded::GroupOptions;
using sharded::Shard;
using sharded::ShardedTensor;
using sharded::ShardedTensorBase;
using sharded::ShardedTensorMetadata;
using sharded::ShardedTensorOptions;
using sharded::ShardingSpec;
using sharded::ShardMetadata;

using Ranks = std::optional<std::vector<int64_t>>;

void bind_options(py::module_& module) {
  py::class_<GroupOptions>(module, "GroupOptions")
      .def(py::init([](Ranks ranks, std::optional<Group> group, bool init_rrefs) {
        return GroupOptions{.ranks = std::move(ranks), .group = std::move(group), .init_rrefs = init_rrefs};
      }));
  py::class_<ShardedTensorOptions>(module, "ShardedTensorOptions")
      .def(py::init([](const GroupOptions& group, std::optional<c10::ScalarType> dtype, const py::object& layout,
                       bool requires_grad, bool pin_memory, c10::MemoryFormat memory_format) {
        ShardedTensorOptions options{group};
        options.dtype = dtype;
        options.layout = layout_of(layout);
        options.requires_grad = requires_grad;
        options.pin_memory = pin_memory;
        options.memory_format = memory_format;
        return options;
      }));
}

void bind_shard(py::module_& module) {
  py::class_<Shard>(module, "Shard")
      .def(py::init<Tensor, ShardMetadata>(), py::arg("tensor"), py::arg("metadata"))
      .def_static("from_tensor_and_offsets", &Shard::from_tensor_and_offsets, py::arg("tensor"),
                  py::arg("shard_offsets"), py::arg("rank"))
      .def_property_readonly("tensor", [](const Shard& self) { return self.tensor; })
      .def_property_readonly("metadata", [](const Shard& self) { return self.metadata; })
      .def("__repr__", [](const Shard& self) { return "Shard(" + to_string(self.metadata) + ")"; });
}

using Factory = ShardedTensor (*)(const ShardingSpec&, const Dims&, const ShardedTensorOptions&);

void bind_factory(py::module_& module, const char* name, Factory factory) {
  module.def(
      name,
      [factory](const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) -> Tensor {
        return factory(spec, size, options);
      },
      ReleaseGil());
}

void bind_making(py::module_& module) {
  bind_factory(module, "empty", &sharded::empty);
  bind_factory(module, "ones", &sharded::ones);
  bind_factory(module, "zeros", &sharded::zeros);
  bind_factory(module, "rand", &sharded::rand);
  bind_factory(module, "randn", &sharded::randn);
  module.def("full",
             [](const ShardingSpec& spec, const Dims& size, const py::object& value,
                const ShardedTensorOptions& options) -> Tensor {
               const at::Scalar number = scalar_of(value);
               const py::gil_scoped_release others_run;
               return sharded::full(spec, size, number, options);
             });
  module.def(
      "init_from_local_shards",
      [](std::vector<Shard> shards, const std::vector<std::optional<int64_t>>& size, const GroupOptions& options)
          -> Tensor { return sharded::init_from_local_shards(std::move(shards), size, options); },
      ReleaseGil());
  module.def(
      "init_from_local_shards_and_global_metadata",
      [](std::vector<Shard> shards, const ShardedTensorMetadata& metadata, const GroupOptions& options,
         const std::optional<ShardingSpec>& spec) -> Tensor {
        return ShardedTensor::init_from_local_shards_and_global_metadata(std::move(shards), metadata, options, spec);
      },
      ReleaseGil());
  module.def(
      "init_from_local_tensor",
      [](const Tensor& local, const ShardingSpec& spec, const Dims& size, const GroupOptions& options) -> Tensor {
        return sharded::init_from_local_tensor(local, spec, size, options);
      },
      ReleaseGil());
  module.def(
      "shard_tensor",
      [](const Tensor& tensor, const ShardingSpec& spec, int64_t src, const GroupOptions& options) -> Tensor {
        return sharded::shard_tensor(tensor, spec, src, options);
      },
      ReleaseGil());
  module.def("agree", [](const GroupOptions& options, const std::string& operation, const py::function& say) {
    std::optional<py::error_already_set> mine;
    try {
      sharded::agree(options, operation, [&] {
        try {
          return say().cast<std::string>();
        } catch (const py::error_already_set& error) {
          mine.emplace(error);
          throw std::runtime_error(message_of(error));
        }
      });
    } catch (const std::exception&) {
      if (mine) throw *mine;
      throw;
    }
  });
}

void bind_reading(py::module_& module) {
  module.def("is_sharded_tensor", &sharded::is_sharded_tensor);
  module.def("metadata", [](const Tensor& tensor) { return ShardedTensorBase(tensor).metadata(); });
  module.def("local_shards", [](const Tensor& tensor) { return ShardedTensorBase(tensor).local_shards(); });
  module.def("local_tensor", [](const Tensor& tensor) { return ShardedTensor(tensor).local_tensor(); });
  module.def("sharding_spec",
             [](const Tensor& tensor) { return spec_object(ShardedTensorBase(tensor).sharding_spec()); });
  module.def("group", [](const Tensor& tensor) { return ShardedTensor(tensor).group(); });
  module.def("ranks", [](const Tensor& tensor) { return ShardedTensor(tensor).ranks(); });
  module.def("describe", [](const Tensor& tensor) { return to_string(ShardedTensor(tensor)); });
}

void bind_moving_shards(py::module_& module) {
  module.def(
      "gather",
      [](const Tensor& tensor, int64_t dst, const std::optional<Tensor>& out, std::optional<c10::ScalarType> dtype,
         bool enforce_dtype) {
        ShardedTensor(tensor).gather(dst, out, {.dtype = dtype, .enforce_dtype = enforce_dtype});
      },
      ReleaseGil());
  module.def(
      "reshard",
      [](const Tensor& tensor, const ShardingSpec& spec) -> Tensor { return ShardedTensor(tensor).reshard(spec); },
      ReleaseGil());
  module.def(
      "reshard_",
      [](const Tensor& tensor, const ShardingSpec& spec) -> Tensor { return ShardedTensor(tensor).reshard_(spec); },
      ReleaseGil());
  module.def("collect_local_shard",
             [](const Tensor& tensor) { return sharded::collect_local_shard(ShardedTensor(tensor)); });
  module.def(
      "to_dtensor",
      [](const Tensor& tensor, const std::optional<DeviceMesh>& mesh, std::optional<Placements> placements) {
        const ShardedTensor from(tensor);
        return mesh && placements ? sharded::to_dtensor(from, *mesh, *std::move(placements))
                                  : sharded::to_dtensor(from);
      },
      ReleaseGil());
  module.def(
      "from_dtensor", [](const Tensor& tensor) -> Tensor { return sharded::from_dtensor(tensor); }, ReleaseGil());
}

void bind_state(py::module_& module) {
  module.def("save", [](const Tensor& tensor) {
    const std::vector<char> bytes = sharded::save(ShardedTensor(tensor));
    return py::bytes(bytes.data(), bytes.size());
  });
  const auto state_of = [](const py::bytes& bytes) {
    const std::string text = bytes;
    return sharded::load_state({text.begin(), text.end()});
  };
  module.def("load", [state_of](const py::bytes& bytes, const GroupOptions& options) -> Tensor {
    const auto state = state_of(bytes);
    const py::gil_scoped_release others_run;
    return ShardedTensor::from_state(state, options);
  });
  module.def(
      "rebuild",
      [state_of](const std::vector<py::bytes>& parts, const ShardingSpec& spec, const GroupOptions& options) -> Tensor {
        std::vector<sharded::ShardedTensorState> states;
        for (const py::bytes& part : parts) states.push_back(state_of(part));
        const py::gil_scoped_release others_run;
        return ShardedTensor::rebuild(states, spec, options);
      });
}

void bind_remote_shards(py::module_& module) {
  using sharded::RemoteShard;
  py::class_<RemoteShard>(module, "RemoteShard")
      .def_property_readonly("metadata", &RemoteShard::metadata)
      .def_property_readonly("owner", &RemoteShard::owner)
      .def(
          "to_here",
          [](const RemoteShard& self, std::optional<double> timeout) {
            return self.to_here(std::chrono::milliseconds(static_cast<int64_t>(timeout.value_or(0) * 1000)));
          },
          py::arg("timeout") = py::none(), ReleaseGil())
      .def("__repr__", [](const RemoteShard& self) { return "RemoteShard(" + to_string(self.metadata()) + ")"; });
  module.def("remote_shards", [](const Tensor& tensor) { return ShardedTensor(tensor).remote_shards(); });
}

class PyGroupScope {
 public:
  explicit PyGroupScope(Group group) : group_(std::move(group)) {}
  void enter() {
    auto scope = std::make_unique<sharded::GroupScope>(group_);  // throws before an earlier one ends
    scope_ = std::move(scope);
  }
  void exit() { scope_.reset(); }

 private:
  Group group_;
  std::unique_ptr<sharded::GroupScope> scope_;
};

// A function of Python as an operator: it gets the arguments in their order, and its result is the operator's.
sharded::ShardedOp python_op(const std::string& op, const py::function& function) {
  const size_t dot = op.find('.');
  const c10::OperatorName name(op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1));
  const auto kept = std::make_shared<c10::SafePyObject>(py::function(function).release().ptr(), getPyInterpreter());
  return [name, kept](std::vector<c10::IValue>& stack) {
    const auto& returns = c10::Dispatcher::singleton().findSchema(name)->schema().returns();
    const py::gil_scoped_acquire python;
    py::tuple arguments(stack.size());
    for (size_t i = 0; i < stack.size(); ++i) arguments[i] = torch::jit::toPyObject(stack[i]);
    const auto result =
        py::reinterpret_steal<py::object>(PyObject_CallObject(kept->ptr(getPyInterpreter()), arguments.ptr()));
    if (!result) {
      python_error error;
      error.persist();
      throw error;
    }
    stack.clear();
    if (returns.size() == 1) {
      stack.push_back(torch::jit::toIValue(result, returns[0].type()));
      return;
    }
    if (returns.empty()) return;
    const auto results = result.cast<py::tuple>();
    for (size_t i = 0; i < std::min(results.size(), returns.size()); ++i) {
      stack.push_back(torch::jit::toIValue(results[i], returns[i].type()));
    }
  };
}

void bind_custom_ops(py::module_& module) {
  module.def("custom_sharded_op", [](const std::string& op, const py::function& function) {
    sharded::custom_sharded_op(op, python_op(op, function));
  });
  module.def("custom_sharding_spec_op",
             [](const std::string& spec_name, const std::string& op, const py::function& function) {
               sharded::custom_sharding_spec_op(spec_name, op, python_op(op, function));
             });
  module.def("has_custom_sharding_spec_op", &sharded::has_custom_sharding_spec_op);
}

}  // namespace

void bind_sharded(py::module_& parent) {
  py::module_ module = parent.def_submodule("sharded");
  bind_sharding_specs(module);
  bind_options(module);
  bind_shard(module);
  bind_making(module);
  bind_reading(module);
  bind_moving_shards(module);
  bind_state(module);
  bind_remote_shards(module);
  py::class_<PyGroupScope>(module, "GroupScope")
      .def(py::init<Group>())
      .def("__enter__", &PyGroupScope::enter)
      .def("__exit__", [](PyGroupScope& self, const py::args&) { self.exit(); });
  bind_custom_ops(module);
}

}  // namespace sherd::python
