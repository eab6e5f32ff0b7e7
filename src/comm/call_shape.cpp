#include "comm/call_shape.h"

#include <cstring>

namespace sherd::detail {
namespace {

constexpr size_t kTextBytes = 160;  // a kind or a description; longer ones are cut

int64_t numel_of(const std::vector<at::Tensor>& tensors, int i) {
  return static_cast<size_t>(i) < tensors.size() ? tensors[static_cast<size_t>(i)].numel() : -1;
}

int64_t given(const Call& call, int to) {
  switch (call.kind) {
    case Collective::all_to_all:
    case Collective::reduce_scatter:
    case Collective::scatter:
      return numel_of(call.inputs, to);
    default:
      return numel_of(call.inputs, 0);
  }
}

int64_t taken(const Call& call, int from) {
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::gather:
      return numel_of(call.outputs, from);
    case Collective::scatter:
    case Collective::broadcast:
      return from == call.root ? numel_of(call.outputs, 0) : -1;
    default:
      return numel_of(call.outputs, 0);
  }
}

std::string fixed(const std::string& text) {
  std::string result = text.substr(0, kTextBytes);
  result.resize(kTextBytes, '\0');
  return result;
}

}  // namespace

CallShape shape_of(const Call& call, int size) {
  CallShape shape;
  shape.kind = name_of(call.kind);
  shape.kind += " " + to_string(call.op) + " " + std::to_string(call.root);
  const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
  if (!tensors.empty()) shape.kind += " " + dtype_name(tensors.front().scalar_type());
  for (int i = 0; i < size; ++i) {
    shape.gives.push_back(given(call, i));
    shape.takes.push_back(taken(call, i));
  }
  shape.description = describe(call);
  return shape;
}

bool fit_together(const std::vector<CallShape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].kind != shapes.front().kind) return false;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const int64_t gives = shapes[i].gives[k];
      const int64_t takes = shapes[k].takes[i];
      if (gives >= 0 && takes >= 0 && gives != takes) return false;
    }
  }
  return true;
}

bool fit_together(const std::vector<const Call*>& calls) {
  const auto dtype = [](const Call& call) {
    const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
    return tensors.empty() ? c10::ScalarType::Undefined : tensors.front().scalar_type();
  };
  const Call& first = *calls.front();
  const auto n = static_cast<int>(calls.size());
  for (int i = 0; i < n; ++i) {
    const Call& call = *calls[static_cast<size_t>(i)];
    if (call.kind != first.kind || call.op != first.op || call.root != first.root || dtype(call) != dtype(first)) {
      return false;
    }
    for (int k = 0; k < n; ++k) {
      const int64_t gives = given(call, k);
      const int64_t takes = taken(*calls[static_cast<size_t>(k)], i);
      if (gives >= 0 && takes >= 0 && gives != takes) return false;
    }
  }
  return true;
}

std::string encode(const CallShape& shape) {
  std::string bytes = fixed(shape.kind) + fixed(shape.description);
  for (const auto* list : {&shape.gives, &shape.takes}) {
    bytes.append(reinterpret_cast<const char*>(list->data()), list->size() * sizeof(int64_t));
  }
  return bytes;
}

CallShape decode(const std::string& bytes, int size) {
  CallShape shape;
  shape.kind = bytes.substr(0, kTextBytes).c_str();
  shape.description = bytes.substr(kTextBytes, kTextBytes).c_str();
  const char* at = bytes.data() + 2 * kTextBytes;
  for (auto* list : {&shape.gives, &shape.takes}) {
    list->resize(static_cast<size_t>(size));
    std::memcpy(list->data(), at, list->size() * sizeof(int64_t));
    at += list->size() * sizeof(int64_t);
  }
  return shape;
}

}  // namespace sherd::detail
