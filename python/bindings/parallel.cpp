// Modules of Python, parallel.

#include "bindings.h"
#include "sherd/clip_grad.h"
#include "sherd/data_parallel.h"
#include "sherd/pipeline.h"

namespace sherd::python {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

ModuleOutline outline(const Named& parameters, const Named& buffers, std::vector<std::string> modules,
                      std::vector<std::string> in_lists, std::vector<std::string> in_rows) {
  const auto tensors = [](const Named& named) {
    std::vector<NamedTensor> result;
    for (const auto& [name, tensor] : named) result.push_back({name, tensor});
    return result;
  };
  return {tensors(parameters), tensors(buffers), std::move(modules), std::move(in_lists), std::move(in_rows)};
}

Schedule schedule_of(bool one_f_one_b) { return one_f_one_b ? Schedule::OneFOneB : Schedule::GPipe; }

// A pipeline whose stage and loss are functions of Python. What they raise is told to the other ranks as a message, and
// comes out here as it was.
class PythonPipeline {
 public:
  PythonPipeline(py::function stage, const DeviceMesh& axis, bool one_f_one_b, int64_t microbatches)
      : stage_(std::move(stage)),
        pipeline_(Pipeline::Stage([this](const at::Tensor& input) { return call(stage_, input); }), axis,
                  {.schedule = schedule_of(one_f_one_b), .microbatches = microbatches}) {}
  PythonPipeline(const PythonPipeline&) = delete;
  PythonPipeline& operator=(const PythonPipeline&) = delete;

  at::Tensor step(const std::optional<at::Tensor>& input, const std::optional<at::Tensor>& target,
                  const py::function& loss) {
    return or_raise([&] {
      return pipeline_.step(
          input.value_or(at::Tensor()), target.value_or(at::Tensor()),
          [&](const at::Tensor& output, const at::Tensor& wanted) { return call(loss, output, wanted); });
    });
  }
  std::optional<at::Tensor> forward(const std::optional<at::Tensor>& input) {
    at::Tensor output = or_raise([&] { return pipeline_.forward(input.value_or(at::Tensor())); });
    return output.defined() ? std::optional(std::move(output)) : std::nullopt;
  }
  const Pipeline& pipeline() const { return pipeline_; }

 private:
  template <class... Arguments>
  at::Tensor call(const py::function& function, const Arguments&... arguments) {
    const py::gil_scoped_acquire gil;
    try {
      return function(arguments...).template cast<at::Tensor>();
    } catch (const py::error_already_set& error) {
      raised_.emplace(error);
      throw std::runtime_error(message_of(error));
    }
  }

  // autograd's engine is called without the interpreter's lock.
  template <class F>
  at::Tensor or_raise(const F& run) {
    raised_.reset();
    try {
      const py::gil_scoped_release others_may_run;
      return run();
    } catch (const std::exception&) {
      if (raised_) throw *std::exchange(raised_, std::nullopt);
      throw;
    }
  }

  py::function stage_;
  Pipeline pipeline_;
  std::optional<py::error_already_set> raised_;
};

void bind_pipeline(py::module_& module) {
  py::class_<PythonPipeline>(module, "Pipeline")
      .def(py::init<py::function, DeviceMesh, bool, int64_t>())
      .def("step", &PythonPipeline::step)
      .def("forward", &PythonPipeline::forward)
      .def("stage", [](const PythonPipeline& self) { return self.pipeline().stage(); })
      .def("stages", [](const PythonPipeline& self) { return self.pipeline().stages(); });
  module.def("schedule_actions", [](bool one_f_one_b, int64_t stages, int64_t stage, int64_t microbatches) {
    std::vector<std::pair<std::string, int64_t>> actions;
    for (const PipelineAction& action : schedule_actions(schedule_of(one_f_one_b), stages, stage, microbatches)) {
      actions.emplace_back(action.kind == PipelineAction::Kind::forward ? "forward" : "backward", action.microbatch);
    }
    return actions;
  });
}

}  // namespace

void bind_parallel(py::module_& module) {
  py::class_<ModuleOutline>(module, "ModuleOutline").def(py::init(&outline));
  py::class_<GradientSyncHandle>(module, "GradientSync")
      .def("pause", &GradientSyncHandle::pause)
      .def("resume", &GradientSyncHandle::resume);
  module.def(
      "clip_grad_norm_",
      [](const std::vector<at::Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
        return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite);
      },
      ReleaseGil());
  module.def("clip_grad_value_", &clip_grad_value_, ReleaseGil());
  module.def(
      "data_parallel",
      [](const ModuleOutline& outline, const DeviceMesh& mesh, int64_t bucket_bytes,
         std::optional<c10::ScalarType> reduce_dtype, std::optional<int> source) {
        return data_parallel(outline, mesh,
                             {.bucket_bytes = bucket_bytes, .reduce_dtype = reduce_dtype, .source = source});
      },
      ReleaseGil());
  module.def(
      "fully_shard",
      [](const ModuleOutline& outline, const DeviceMesh& mesh, std::optional<c10::ScalarType> param_dtype,
         std::optional<c10::ScalarType> reduce_dtype, bool reshard_after_forward, std::vector<std::string> units,
         bool prefetch, bool offload, std::optional<int> source) {
        return fully_shard(outline, mesh,
                           {.mixed_precision = {.param_dtype = param_dtype, .reduce_dtype = reduce_dtype},
                            .reshard_after_forward = reshard_after_forward,
                            .units = std::move(units),
                            .prefetch = prefetch,
                            .offload = offload,
                            .source = source});
      },
      ReleaseGil());
  bind_pipeline(module);
}

}  // namespace sherd::python
