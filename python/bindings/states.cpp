#include "states.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "sherd/checkpointable.h"
#include "sherd/dtensor.h"
#include "sherd/error.h"
#include "sherd/local_shards.h"
#include "sherd/sharded_tensor.h"

namespace sherd::python {
namespace {

// What a state has no kind for is what `pickle` makes of it: a tuple or a list as a whole, where something in it is so;
// a dict where its keys are, and no tensors are to be found by them.
class ToState {
 public:
  ToState(std::string operation, py::function pickle) : operation_(std::move(operation)), pickle_(std::move(pickle)) {}

  StateDict state(const py::dict& dict) const {
    check_depth(dict, 0);
    return this->dict(dict);
  }

 private:
  // A container may be inside of itself, and everything below goes into what it finds.
  void check_depth(const py::handle& value, int depth) const {
    constexpr int kDeepest = 1000;  // as in the pickles that are read
    const bool is_dict = py::isinstance<py::dict>(value);
    if (!is_dict && !is_list(value) && !is_tuple(value)) return;
    if (depth > kDeepest) {
      throw std::invalid_argument(ErrorText(operation_, "a state is nested deeper than checkpoints are")
                                      .fact("most", fmt::format("{} levels", kDeepest))
                                      .help("a state in which no dict or list stands inside itself"));
    }
    if (is_dict) {
      for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) check_depth(item, depth + 1);
    } else {
      for (const py::handle item : py::iter(value)) check_depth(item, depth + 1);
    }
  }

  StateDict dict(const py::dict& dict) const {
    StateDict state;
    for (const auto& [key, value] : dict) state[key_of(key)] = convert(value);
    return state;
  }

  static bool is_key(const py::handle& key) { return PyUnicode_Check(key.ptr()) != 0 || integer(key); }

  StateKey key_of(const py::handle& key) const {
    if (py::isinstance<py::str>(key)) return text(key);
    if (const auto number = integer(key)) return *number;
    throw std::invalid_argument(ErrorText(operation_, "a key of a state is neither text nor an integer")
                                    .fact("key", py::cast<std::string>(py::repr(key)))
                                    .help("str(key)"));
  }

  // Python's may hold halves of characters.
  std::string text(const py::handle& value) const {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (bytes != nullptr) return {bytes, static_cast<size_t>(size)};
    PyErr_Clear();
    throw std::invalid_argument(
        ErrorText(operation_, "a text of the state cannot be written as UTF-8")
            .fact("text", py::cast<std::string>(py::reinterpret_steal<py::object>(PyObject_ASCII(value.ptr()))))
            .help("text.encode(\"utf-8\", \"surrogateescape\"): bytes are kept as they are"));
  }

  // Of 64 bits; Python's are of any length.
  static std::optional<int64_t> integer(const py::handle& value) {
    if (!py::isinstance<py::int_>(value) || py::isinstance<py::bool_>(value)) return std::nullopt;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    return overflow == 0 ? std::optional<int64_t>(number) : std::nullopt;
  }

  static bool is_list(const py::handle& value) { return PyList_CheckExact(value.ptr()) != 0; }
  static bool is_tuple(const py::handle& value) { return PyTuple_CheckExact(value.ptr()) != 0; }

  // Whether a state has kinds for the value and for all that is in it.
  static bool is_known(const py::handle& value) {
    if (value.is_none() || THPVariable_Check(value.ptr()) || py::isinstance<py::bool_>(value)) return true;
    if (PyLong_CheckExact(value.ptr()) != 0) return integer(value).has_value();
    if (PyFloat_CheckExact(value.ptr()) != 0 || PyUnicode_CheckExact(value.ptr()) != 0) return true;
    if (PyBytes_CheckExact(value.ptr()) != 0) return true;
    if (is_list(value) || is_tuple(value)) {
      return std::all_of(py::iter(value), py::iterator::sentinel(), is_known);
    }
    if (!py::isinstance<py::dict>(value)) return false;
    const auto items = py::reinterpret_borrow<py::dict>(value);
    return std::all_of(items.begin(), items.end(),
                       [](const auto& item) { return is_key(item.first) && is_known(item.second); });
  }

  static bool holds_tensors(const py::handle& value) {
    if (THPVariable_Check(value.ptr())) return true;
    if (is_list(value) || is_tuple(value)) return std::any_of(py::iter(value), py::iterator::sentinel(), holds_tensors);
    if (!py::isinstance<py::dict>(value)) return false;
    const auto items = py::reinterpret_borrow<py::dict>(value);
    return std::any_of(items.begin(), items.end(), [](const auto& item) { return holds_tensors(item.second); });
  }
  static bool is_object_by_its_keys(const py::dict& dict) {
    const auto is_named = [](const auto& item) { return is_key(item.first); };
    return !std::all_of(dict.begin(), dict.end(), is_named) && !holds_tensors(dict);
  }

  // As flatten_state_dict takes a list apart: then each of its items is kept by itself.
  static bool is_taken_apart(const py::handle& list) {
    return std::any_of(py::iter(list), py::iterator::sentinel(), [](const py::handle& item) {
      if (THPVariable_Check(item.ptr())) return true;
      if (is_list(item)) return is_taken_apart(item);
      return py::isinstance<py::dict>(item) && !is_object_by_its_keys(py::reinterpret_borrow<py::dict>(item));
    });
  }

  static bool holds_tensors_of_several_ranks(const py::handle& value) {
    if (THPVariable_Check(value.ptr())) {
      const auto tensor = py::cast<at::Tensor>(value);
      return is_dtensor(tensor) || sharded::is_sharded_tensor(tensor) || is_local_shards(tensor);
    }
    const auto inside = [](const py::handle& item) { return holds_tensors_of_several_ranks(item); };
    if (is_list(value) || is_tuple(value)) return std::any_of(py::iter(value), py::iterator::sentinel(), inside);
    if (!py::isinstance<py::dict>(value)) return false;
    const auto items = py::reinterpret_borrow<py::dict>(value);
    return std::any_of(items.begin(), items.end(), [&](const auto& item) { return inside(item.second); });
  }

  // What is kept whole is one pickle: nothing in it can be another one.
  static bool is_one_object(const py::handle& value) {
    if (is_list(value) ? is_taken_apart(value) : !is_tuple(value)) return false;
    return !is_known(value) && !holds_tensors_of_several_ranks(value);
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
      if (const auto number = integer(value)) return *number;
    }
    if (PyFloat_CheckExact(value.ptr()) != 0) return py::cast<double>(value);
    if (PyUnicode_CheckExact(value.ptr()) != 0) return text(value);
    if (PyBytes_CheckExact(value.ptr()) != 0) return StateBytes{py::cast<std::string>(value)};
    if (is_one_object(value)) return pickled(value);
    if (is_list(value)) return items(py::reinterpret_borrow<py::list>(value));
    if (is_tuple(value)) return StateTuple{items(py::reinterpret_borrow<py::tuple>(value))};
    if (py::isinstance<py::dict>(value)) {
      const auto items = py::reinterpret_borrow<py::dict>(value);
      if (!is_object_by_its_keys(items)) return dict(items);
    }
    return pickled(value);
  }

  StateOpaque pickled(const py::handle& value) const {
    try {
      return {py::cast<std::string>(py::bytes(pickle_(value)))};
    } catch (const py::error_already_set& error) {
      const std::string_view why = error.what();
      if (py::hasattr(value, "not_there")) {  // _NoState of Python
        throw std::invalid_argument(ErrorText(operation_, py::cast<std::string>(py::str(value.attr("not_there"))))
                                        .fact("because", why.substr(0, why.find('\n')))
                                        .help("the traceback above, on the rank that says this"));
      }
      throw std::invalid_argument(ErrorText(operation_, "a value of the state cannot be pickled")
                                      .fact("type", py::cast<std::string>(py::str(py::type::handle_of(value))))
                                      .fact("because", why.substr(0, why.find('\n')))
                                      .help("leave the key out, or save something else under it"));
    }
  }

  std::string operation_;
  py::function pickle_;
};

// In place of a state that could not be taken over. It says so where the ranks agree on their states, so that none
// waits for one that threw.
class Refused final : public Stateful {
 public:
  explicit Refused(std::string why) : why_(std::move(why)) {}
  StateDict state_dict() const override { TORCH_CHECK_VALUE(false, why_); }
  void load_state_dict(const StateDict& /*state*/) override {}

 private:
  std::string why_;
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

StateDict to_state(const std::string& operation, const py::dict& state, const py::function& pickle) {
  try {
    return ToState(operation, pickle).state(state);
  } catch (const std::exception& error) {  // whatever it is: the other ranks are on their way to the exchange
    return {{"refused", std::make_shared<Refused>(error.what())}};
  }
}

py::dict from_state(const StateDict& state, const py::function& unpickle) { return FromState(unpickle).dict(state); }

}  // namespace sherd::python
