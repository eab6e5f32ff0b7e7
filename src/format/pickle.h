#pragma once
// Python's pickles, read without running anything and written so that Python reads them.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "format/value.h"

namespace sherd::format {

struct UnpickleOptions {
  std::string_view operation = "unpickle";  // begins every error
  std::string_view source = "the pickle";   // the file or record, for errors
  /// Whether a global may stand in the pickle; one that may not is refused by its name. Nothing: every one, as an
  /// Object or Global that is never called.
  std::function<bool(const Global&)> allowed = {};
  int64_t max_depth = 1000;
  /// Values alive at once; a pickle of n bytes never makes more than n.
  int64_t max_values = int64_t{1} << 32;
};

/// The value of a pickle of protocol 0 to 5. torch's persistent ids of storages and the calls that rebuild tensors
/// become TensorRefs; OrderedDict, set, frozenset, torch.Size (a Tuple), complex and bytearray become what they are.
/// Throws std::invalid_argument naming the opcode and its place for everything else: unknown opcodes, an empty stack,
/// counts beyond the input, extension registries, references into nowhere, cycles, what lies behind STOP.
Value unpickle(std::span<const std::byte> bytes, const UnpickleOptions& options = {});

/// Protocol 2, as torch.save writes it; the key in a tensor's persistent id is its `storage`. What is one container in
/// the value is one in Python. `on_tensor` sees every tensor that has a storage, once. Throws std::invalid_argument for
/// texts that are not UTF-8 and for values deeper in one another than 1000.
std::string pickle(const Value& value, const std::function<void(const TensorRef&)>& on_tensor = {});

}  // namespace sherd::format
