// Saving and loading states.

#include "sherd/checkpoint.h"

#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"
#include "sherd/error.h"
#include "sherd/world.h"

namespace sherd::python {
namespace {

// Python's values and those of states. What a state has no kind for is what `pickle` makes of it.
class ToState {
 public:
  explicit ToState(py::function pickle) : pickle_(std::move(pickle)) {}

  StateDict dict(const py::dict& dict) const {
    StateDict state;
    for (const auto& [key, value] : dict) state[key_of(key)] = convert(value);
    return state;
  }

 private:
  static StateKey key_of(const py::handle& key) {
    if (py::isinstance<py::str>(key)) return py::cast<std::string>(key);
    if (py::isinstance<py::int_>(key) && !py::isinstance<py::bool_>(key)) return py::cast<int64_t>(key);
    throw std::invalid_argument(ErrorText("save", "a key of a state is neither text nor an integer")
                                    .fact("key", py::cast<std::string>(py::repr(key)))
                                    .help("str(key)"));
  }

  template <class Sequence>
  StateList items(const Sequence& sequence) const {
    StateList list;
    for (const py::handle item : sequence) list.push_back(convert(item));
    return list;
  }

  StateValue convert(const py::handle& value) const {
    if (value.is_none()) return {};
    if (THPVariable_Check(value.ptr())) return py::cast<at::Tensor>(value);
    if (py::isinstance<py::bool_>(value)) return py::cast<bool>(value);
    if (PyLong_CheckExact(value.ptr()) != 0) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
      if (overflow == 0) return static_cast<int64_t>(number);
    }
    if (PyFloat_CheckExact(value.ptr()) != 0) return py::cast<double>(value);
    if (PyUnicode_CheckExact(value.ptr()) != 0) return py::cast<std::string>(value);
    if (PyBytes_CheckExact(value.ptr()) != 0) return StateBytes{py::cast<std::string>(value)};
    if (PyList_CheckExact(value.ptr()) != 0) return items(py::reinterpret_borrow<py::list>(value));
    if (PyTuple_CheckExact(value.ptr()) != 0) return StateTuple{items(py::reinterpret_borrow<py::tuple>(value))};
    if (py::isinstance<py::dict>(value)) return dict(py::reinterpret_borrow<py::dict>(value));
    return StateOpaque{py::cast<std::string>(py::bytes(pickle_(value)))};
  }

  py::function pickle_;
};

class FromState {
 public:
  explicit FromState(py::function unpickle) : unpickle_(std::move(unpickle)) {}

  py::dict dict(const StateDict& state) const {
    py::dict out;
    for (const auto& [key, value] : state) {
      out[std::visit([](const auto& part) -> py::object { return py::cast(part); }, key)] = convert(value);
    }
    return out;
  }

 private:
  py::object convert(const StateValue& value) const {
    return std::visit([&](const auto& content) { return of(content); }, value.content());
  }
  static py::object of(std::monostate) { return py::none(); }
  static py::object of(bool value) { return py::bool_(value); }
  static py::object of(int64_t value) { return py::int_(value); }
  static py::object of(double value) { return py::float_(value); }
  static py::object of(const std::string& text) { return py::str(text); }
  static py::object of(const StateBytes& bytes) { return py::bytes(bytes.data); }
  py::object of(const StateOpaque& object) const { return unpickle_(py::bytes(object.archive)); }
  static py::object of(const at::Tensor& tensor) { return py::cast(tensor); }
  static py::object of(const std::shared_ptr<Checkpointable>&) { return py::none(); }
  static py::object of(const std::shared_ptr<Stateful>&) { return py::none(); }
  py::object of(const std::shared_ptr<StateList>& list) const {
    py::list out;
    for (const StateValue& item : *list) out.append(convert(item));
    return out;
  }
  py::object of(const std::shared_ptr<StateTuple>& tuple) const {
    py::list out;
    for (const StateValue& item : tuple->items) out.append(convert(item));
    return py::tuple(out);
  }
  py::object of(const std::shared_ptr<StateDict>& state) const { return dict(*state); }

  py::function unpickle_;
};

/// In Python's words.
struct SaveArguments {
  std::optional<Group> group;
  bool overwrite = true;
  std::string base;
  std::string format;
  bool compress = false;

  SaveOptions options(const World& world) const {
    return {.group = group ? *group : world.group(),
            .overwrite = overwrite,
            .base = base,
            .format = parse_checkpoint_format(format),
            .compress = compress};
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
                       const std::string& format, bool compress) {
        return SaveArguments{group, overwrite, base, format, compress};
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
    const StateDict converted = ToState(pickle).dict(state);
    const py::gil_scoped_release others_run;
    return save(converted, path, arguments.options(world));
  });
  module.def("save_async", [](const World& world, const py::dict& state, const std::string& path,
                              const SaveArguments& arguments, const py::function& pickle) {
    const StateDict converted = ToState(pickle).dict(state);
    const py::gil_scoped_release others_run;
    return save_async(converted, path, arguments.options(world));
  });
  module.def(
      "load", [](const World& world, const py::dict& state, const std::string& path, const std::optional<Group>& group,
                 bool strict, bool verify, const py::function& pickle, const py::function& unpickle) {
        StateDict converted = ToState(pickle).dict(state);
        LoadResult result;
        {
          const py::gil_scoped_release others_run;
          result = load(converted, path, {.group = group ? *group : world.group(), .strict = strict, .verify = verify});
        }
        return std::pair(FromState(unpickle).dict(converted), result);
      });
  module.def("load_state_dict", [](const std::string& path, const std::vector<std::string>& names, bool verify,
                                   const py::function& unpickle) {
    StateDict state;
    {
      const py::gil_scoped_release others_run;
      state = load_state_dict(path, names, {.verify = verify});
    }
    return FromState(unpickle).dict(state);
  });
}

}  // namespace sherd::python
