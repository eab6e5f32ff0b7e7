// Saving and loading states.

#include "sherd/checkpoint.h"

#include "bindings.h"
#include "sherd/world.h"
#include "states.h"
#include "told.h"

namespace sherd::python {
namespace {

/// In Python's words.
struct SaveArguments {
  std::optional<Group> group;
  bool overwrite = true;
  std::string base;
  std::string format;
  bool compress = false;
  std::function<void(const CheckpointProgress&)> progress;
  std::optional<double> give_up_after;  // seconds

  SaveOptions options(const World& world) const {
    return {.group = group ? *group : world.group(),
            .overwrite = overwrite,
            .base = base,
            .format = parse_checkpoint_format(format),
            .compress = compress,
            .progress = progress,
            .give_up_after = in_milliseconds(give_up_after)};
  }
};

}  // namespace

void bind_checkpoint(py::module_& module) {
  py::class_<SaveResult>(module, "SaveResult")
      .def_readonly("bytes", &SaveResult::bytes)
      .def_readonly("bytes_of_rank", &SaveResult::bytes_of_rank)
      .def_readonly("bytes_in_base", &SaveResult::bytes_in_base);
  py::class_<SaveArguments>(module, "SaveArguments")
      .def(py::init([](const std::optional<Group>& group, bool overwrite, const std::string& base,
                       const std::string& format, bool compress, const std::optional<py::function>& progress,
                       std::optional<double> give_up_after) {
        return SaveArguments{group, overwrite, base, format, compress, told_all_ranks(progress), give_up_after};
      }));
  py::class_<SaveFuture>(module, "SaveFuture")
      .def("wait", &SaveFuture::wait, ReleaseGil())
      .def("ready", &SaveFuture::ready)
      .def("progress", [](const SaveFuture& self) {
        const CheckpointProgress progress = self.progress();
        return std::pair(progress.bytes, progress.total);
      });
  py::class_<LoadResult>(module, "LoadResult")
      .def_readonly("missing", &LoadResult::missing)
      .def_readonly("unexpected", &LoadResult::unexpected)
      .def_readonly("bytes", &LoadResult::bytes);
  module.def("save", [](const World& world, const py::dict& state, const std::string& path,
                        const SaveArguments& arguments, const py::function& pickle) {
    const StateDict converted = to_state("save", state, pickle);
    const py::gil_scoped_release others_run;
    return save(converted, path, arguments.options(world));
  });
  module.def("save_async", [](const World& world, const py::dict& state, const std::string& path,
                              const SaveArguments& arguments, const py::function& pickle) {
    const StateDict converted = to_state("save", state, pickle);
    const py::gil_scoped_release others_run;
    return save_async(converted, path, arguments.options(world));
  });
  module.def("load",
             [](const World& world, const py::dict& state, const std::string& path, const std::optional<Group>& group,
                bool strict, bool verify, const std::optional<py::function>& progress, const py::function& pickle,
                const py::function& unpickle) {
               const LoadOptions options{.group = group ? *group : world.group(),
                                         .strict = strict,
                                         .verify = verify,
                                         .progress = told_all_ranks(progress)};
               StateDict converted = to_state("load", state, pickle);
               LoadResult result;
               {
                 const py::gil_scoped_release others_run;
                 result = load(converted, path, options);
               }
               return std::pair(from_state(converted, unpickle), result);
             });
  module.def("load_state_dict", [](const std::string& path, const std::vector<std::string>& names, bool verify,
                                   const std::optional<py::function>& progress, const py::function& unpickle) {
    const LoadOptions options{.verify = verify, .progress = told_all_ranks(progress)};
    StateDict state;
    {
      const py::gil_scoped_release others_run;
      state = load_state_dict(path, names, options);
    }
    return from_state(state, unpickle);
  });
  bind_checkpoint_manager(module);
}

}  // namespace sherd::python
