#include "states.h"

#include <torch/csrc/autograd/python_variable.h>

#include "sherd/checkpointable.h"
#include "sherd/error.h"

namespace sherd::python {
namespace {

// What a state has no kind for is what `pickle` makes of it.
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

}  // namespace

StateDict to_state(const py::dict& state, const py::function& pickle) { return ToState(pickle).dict(state); }

py::dict from_state(const StateDict& state, const py::function& unpickle) { return FromState(unpickle).dict(state); }

}  // namespace sherd::python
