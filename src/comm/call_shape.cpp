#include "comm/call_shape.h"

#include <cstring>

#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

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

bool blocks_per_rank(const Call& call, size_t ranks) {
  switch (call.kind) {
    case Collective::all_gather:
      return call.outputs.size() == ranks;
    case Collective::all_to_all:
      return call.outputs.size() == ranks && call.inputs.size() == ranks;
    case Collective::reduce_scatter:
      return call.inputs.size() == ranks;
    case Collective::gather:
      return call.outputs.empty() || call.outputs.size() == ranks;
    case Collective::scatter:
      return call.inputs.empty() || call.inputs.size() == ranks;
    default:
      return true;
  }
}

c10::ScalarType dtype_of(const Call& call) {
  const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
  return tensors.empty() ? c10::ScalarType::Undefined : tensors.front().scalar_type();
}

// What must be equal on all ranks.
int64_t kind_number(const Call& call) {
  return static_cast<int64_t>(call.kind) | static_cast<int64_t>(call.op) << 8 |
         static_cast<int64_t>(dtype_of(call)) << 16 | static_cast<int64_t>(call.root) << 32;
}

uint64_t hash_of(const Call& call) { return call.purpose ? call.purpose->hash : 0; }

int64_t kind_and_purpose(const Call& call) { return kind_number(call) ^ static_cast<int64_t>(hash_of(call)); }

// Whether rank `to` says what it takes from rank `from`, and `from` what it gives.
bool both_say(const Call& call, int from, int to) {
  switch (call.kind) {
    case Collective::gather:
      return to == call.root;
    case Collective::broadcast:
    case Collective::scatter:
      return from == call.root;
    default:
      return true;
  }
}

// Spreads `numel` elements from one rank to another over 64 bits (the last steps of SplitMix64).
uint64_t mixed(int from, int to, int64_t numel) {
  uint64_t x = static_cast<uint64_t>(numel);
  for (const uint64_t next : {static_cast<uint64_t>(from), static_cast<uint64_t>(to)}) {
    x += 0x9e3779b97f4a7c15 * (next + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x;
}

std::string fixed(const std::string& text) {
  std::string result = text.substr(0, kTextBytes);
  result.resize(kTextBytes, '\0');
  return result;
}

}  // namespace

void check_blocks_per_rank(const Call& call, const std::vector<int64_t>& ranks) {
  if (blocks_per_rank(call, ranks.size())) return;
  throw_value_error(ErrorText(name_of(call.kind), "needs one block per rank of the group")
                        .fact("call", describe(call))
                        .fact("group", "ranks " + rank_list(ranks))
                        .help("pass as many tensors as the group has ranks"));
}

CallShape shape_of(const Call& call, int size) {
  CallShape shape;
  shape.kind = name_of(call.kind);
  shape.kind += " " + to_string(call.op) + " " + std::to_string(call.root);
  const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
  if (!tensors.empty()) shape.kind += " " + dtype_name(tensors.front().scalar_type());
  if (call.purpose) shape.kind += " " + std::to_string(call.purpose->hash);
  for (int i = 0; i < size; ++i) {
    shape.gives.push_back(given(call, i));
    shape.takes.push_back(taken(call, i));
  }
  shape.description = describe_with_purpose(call);
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
  const Call& first = *calls.front();
  const auto n = static_cast<int>(calls.size());
  for (int i = 0; i < n; ++i) {
    const Call& call = *calls[static_cast<size_t>(i)];
    if (call.kind != first.kind || call.op != first.op || call.root != first.root ||
        dtype_of(call) != dtype_of(first) || hash_of(call) != hash_of(first)) {
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

void write_numbers(const Call& call, int size, int64_t* numbers) {
  numbers[0] = kind_and_purpose(call);
  for (int i = 0; i < size; ++i) {
    numbers[1 + i] = given(call, i);
    numbers[1 + size + i] = taken(call, i);
  }
}

bool fit_together(const int64_t* const* calls, int size) {
  for (int i = 0; i < size; ++i) {
    if (calls[i][0] != calls[0][0]) return false;
    for (int k = 0; k < size; ++k) {
      const int64_t gives = calls[i][1 + k];
      const int64_t takes = calls[k][1 + size + i];
      if (gives >= 0 && takes >= 0 && gives != takes) return false;
    }
  }
  return true;
}

CallSums sums_of(const Call& call, int rank, int size) {
  CallSums sums{.kind = kind_and_purpose(call)};
  for (int i = 0; i < size; ++i) {
    if (both_say(call, rank, i)) sums.gives += mixed(rank, i, given(call, i));
    if (both_say(call, i, rank)) sums.takes += mixed(i, rank, taken(call, i));
  }
  return sums;
}

bool fit_together(const std::vector<CallSums>& calls) {
  uint64_t difference = 0;
  for (const CallSums& call : calls) {
    if (call.kind != calls.front().kind) return false;
    difference += call.gives - call.takes;
  }
  return difference == 0;
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
