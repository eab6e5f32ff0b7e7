#pragma once
// Objects that are no tensors as JSON, for formats that hold texts beside their tensors.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "format/value.h"

namespace sherd::format {

/// In the metadata of a safetensors file: {"step": 4000}, objects by name, and {"model.w": ["model", "w"]}, where names
/// stood in a nested state.
inline constexpr const char* kObjectsKey = "sherd.objects";
inline constexpr const char* kPathsKey = "sherd.paths";

/// What torch.save wrote of an object, as JSON. None, booleans, numbers, texts, lists and dicts with keys of text are
/// what they are in JSON. What it has no form for is an object of one key that begins with "$": {"$tuple": [1, 2]},
/// {"$float": "nan"}, {"$bytes": "base64"}, {"$dict": [[1, "a"]]} for other keys, {"$ordered": [["a", 1]]},
/// {"$torch.save": "base64"} for everything else. `name` begins the facts of errors.
nlohmann::ordered_json object_to_json(std::string_view archive, std::string_view name);
/// The inverse: what torch.save would write. Throws std::invalid_argument for what object_to_json does not write.
std::string object_from_json(const nlohmann::ordered_json& json, std::string_view name);

/// The same of a value that is in no archive; null where JSON has no form for all of it.
nlohmann::ordered_json value_to_json(const Value& value);
Value value_from_json(const nlohmann::ordered_json& json, std::string_view name);

std::string to_base64(std::string_view bytes);
/// Throws std::invalid_argument.
std::string from_base64(std::string_view text);

}  // namespace sherd::format
