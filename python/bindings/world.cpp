// Ranks: worlds, groups, and threads as ranks.

#include "sherd/world.h"

#include <cstdio>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bindings.h"
#include "sherd/shared_memory.h"

namespace sherd::python {
namespace {

// When atexit handlers of Python run, the exit code of the program is decided.
bool ends_badly = false;
void end() {
  if (!ends_badly) return;
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

WorldOptions world_options(const std::string& backend, std::optional<double> timeout, bool check) {
  WorldOptions options{.backend = backend, .check = check};
  if (timeout) options.timeout = std::chrono::milliseconds(static_cast<int64_t>(*timeout * 1000));
  return options;
}

// Every rank runs fn(rank), each in a thread of its own. What the first rank to fail raised is raised here.
py::list spawn_ranks(int n, const py::function& fn, const std::string& backend, std::optional<double> timeout,
                     bool check) {
  struct Failed : std::runtime_error {
    Failed(size_t r, const std::string& text) : std::runtime_error(text), rank(r) {}
    size_t rank;
  };
  std::vector<py::object> results(n > 0 ? static_cast<size_t>(n) : 0, py::none());
  std::vector<std::optional<py::error_already_set>> errors(results.size());
  std::optional<size_t> failed;
  {
    const py::gil_scoped_release others_run;
    try {
      spawn(
          n,
          [&](World& world) {
            const py::gil_scoped_acquire python;
            const auto rank = static_cast<size_t>(world.rank());
            try {
              results[rank] = fn(world.rank());
            } catch (const py::error_already_set& error) {
              errors[rank].emplace(error);
              throw Failed(rank, message_of(error));
            }
          },
          world_options(backend, timeout, check));
    } catch (const Failed& error) {
      failed = error.rank;
    }
  }
  if (failed) throw py::error_already_set(*errors[*failed]);
  py::list list;
  for (py::object& result : results) list.append(std::move(result));
  return list;
}

// with sherd.fake_world(0, 8): ...
class PyWorldScope {
 public:
  explicit PyWorldScope(World world) : world_(std::move(world)) {}
  const World& enter() {
    scopes_.push_back(std::make_unique<WorldScope>(world_));
    return world_;
  }
  void exit() { scopes_.pop_back(); }

 private:
  World world_;
  std::vector<std::unique_ptr<WorldScope>> scopes_;
};

}  // namespace

std::string message_of(const py::error_already_set& error) {
  const std::string text = py::str(error.value());
  if (text.find("\n  help: ") != std::string::npos) return text;
  const std::string type = py::str(error.type().attr("__name__"));
  return text.empty() ? type : type + ": " + text;
}

void bind_world(py::module_& module) {
  py::class_<Group>(module, "Group")
      .def("rank", &Group::rank)
      .def("size", &Group::size)
      .def_property_readonly("ranks", &Group::ranks)
      .def_property_readonly("name", &Group::name)
      .def("__eq__", [](const Group& self, const Group& other) { return self == other; })
      .def("__hash__", [](const Group& self) { return std::hash<const void*>()(&self.state()); })
      .def("__repr__", [](const Group& self) { return "Group(" + self.name() + ")"; });
  py::class_<World>(module, "World")
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def_property_readonly("local_rank", &World::local_rank)
      .def_property_readonly("local_size", &World::local_size)
      .def(
          "group",
          [](const World& self, const std::optional<std::vector<int64_t>>& ranks, const std::string& backend) {
            return ranks ? self.group(*ranks, backend) : self.group();
          },
          py::arg("ranks") = py::none(), py::arg("backend") = "")
      .def("fail", &World::fail, py::arg("message"), ReleaseGil())
      .def("close", &World::close, ReleaseGil())
      .def("use_backend",
           [](const World& self, const std::vector<int64_t>& ranks, const std::string& device,
              c10::intrusive_ptr<c10d::Backend> backend) {
             self.use_backend(ranks, c10::Device(device).type(), std::move(backend));
           })
      .def("__eq__", [](const World& self, const World& other) { return self == other; })
      .def("__hash__", [](const World& self) { return std::hash<const void*>()(self.state().get()); })
      .def("__repr__", [](const World& self) {
        return "World(rank " + std::to_string(self.rank()) + " of " + std::to_string(self.size()) + ")";
      });
  py::class_<PyWorldScope>(module, "WorldScope")
      .def(py::init<World>())
      .def("__enter__", &PyWorldScope::enter)
      .def("__exit__", [](PyWorldScope& self, const py::args&) { self.exit(); });
  std::atexit(end);  // called after what init() registers
  module.def("end_badly", [] { ends_badly = true; });
  module.def("spawn", &spawn_ranks);
  module.def(
      "init",
      [](const std::string& backend, std::optional<double> timeout, bool check) {
        return init(world_options(backend, timeout, check));
      },
      ReleaseGil());
  module.def(
      "init_with_store",
      [](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
        return init_with_store(std::move(store), rank, size);
      },
      ReleaseGil());
  module.def(
      "make_shared_memory_backend",
      [](c10::intrusive_ptr<c10d::Store> store, int rank, int size, double timeout, std::vector<int64_t> ranks) {
        const std::chrono::milliseconds time(static_cast<int64_t>(timeout * 1000));
        return make_shared_memory_backend({std::move(store), rank, size, time, std::move(ranks)});
      },
      ReleaseGil());
  module.def("fake_world", &fake_world, py::arg("rank"), py::arg("size"));
  module.def("find_world", &find_world);
}

}  // namespace sherd::python
