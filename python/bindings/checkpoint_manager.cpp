// Checkpoints of a run: which are kept, and which one to go on from.

#include "sherd/checkpoint_manager.h"

#include "bindings.h"
#include "sherd/world.h"
#include "states.h"
#include "told.h"

namespace sherd::python {

void bind_checkpoint_manager(py::module_& module) {
  py::class_<CheckpointManager>(module, "CheckpointManager")
      .def(py::init([](const World& world, const std::string& folder, int64_t keep_last, int64_t keep_every,
                       bool incremental, const std::optional<Group>& group, std::optional<double> give_up_after) {
        return CheckpointManager(folder, {.keep_last = keep_last,
                                          .keep_every = keep_every,
                                          .incremental = incremental,
                                          .group = group ? *group : world.group(),
                                          .give_up_after = in_milliseconds(give_up_after)});
      }))
      .def("save",
           [](CheckpointManager& self, int64_t step, const py::dict& state, const py::function& pickle) {
             const StateDict converted = to_state("save", state, pickle);
             const py::gil_scoped_release others_run;
             return self.save(step, converted);
           })
      .def("save_async",
           [](CheckpointManager& self, int64_t step, const py::dict& state, const py::function& pickle) {
             const StateDict converted = to_state("save", state, pickle);
             const py::gil_scoped_release others_run;
             return self.save_async(step, converted);
           })
      .def("wait", &CheckpointManager::wait, ReleaseGil())
      .def("steps", &CheckpointManager::steps, ReleaseGil())
      .def("path_of", &CheckpointManager::path_of)
      .def("load_latest",
           [](CheckpointManager& self, const py::dict& state, bool strict, bool verify,
              const std::optional<py::function>& progress, const py::function& pickle, const py::function& unpickle) {
             StateDict converted = to_state("load", state, pickle);
             const LoadOptions options{.strict = strict, .verify = verify, .progress = told_all_ranks(progress)};
             std::optional<int64_t> step;
             {
               const py::gil_scoped_release others_run;
               step = self.load_latest(converted, options);
             }
             return std::pair(step, from_state(converted, unpickle));
           })
      .def("warnings", [](const CheckpointManager& self) { return self.warnings(); });
}

}  // namespace sherd::python
