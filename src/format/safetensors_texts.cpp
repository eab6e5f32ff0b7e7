#include "format/safetensors_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "format/object_json.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostDepth = 4000;

[[noreturn]] void fail(std::string_view source, std::string_view problem) {
  throw std::invalid_argument(ErrorText("read_safetensors", problem).fact("in", source));
}

/// nlohmann looks through all keys for each new one where their order counts; a hostile text has millions.
void append(Json& object, const std::string& key, Json value) {
  auto& items = *object.get_ptr<Json::object_t*>();
  static_cast<Json::object_t::Container&>(items).emplace_back(key, std::move(value));
}

class JsonReader {
 public:
  // NOLINTBEGIN(readability-identifier-naming): nlohmann's names
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;
  // NOLINTEND(readability-identifier-naming)

  explicit JsonReader(std::string_view source) : source_(source) {}
  Json root;

  // NOLINTBEGIN(readability-identifier-naming): nlohmann's names
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { fail(source_, "binary data in JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& value) {
    Open& last = open_.back();
    if (!last.keys.insert(value).second) {
      fail(source_, fmt::format("the key {} stands twice", Json(value).dump()));
    }
    last.key = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail(source_, fmt::format("this is no JSON: byte {}", position));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  struct Open {
    Json json;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool open(Json json) {
    if (open_.size() == kMostDepth) fail(source_, fmt::format("JSON deeper than {}", kMostDepth));
    open_.push_back({std::move(json), {}, {}});
    return true;
  }
  bool close() {
    Json closed = std::move(open_.back().json);
    open_.pop_back();
    return add(std::move(closed));
  }
  bool add(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().json.is_object()) {
      append(open_.back().json, open_.back().key, std::move(value));
    } else {
      open_.back().json.push_back(std::move(value));
    }
    return true;
  }

  std::string_view source_;
  std::vector<Open> open_;
};

Json parse(std::string_view text, std::string_view source) {
  // The parser would take it for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail(source, fmt::format("this is no JSON: byte {}", zero + 1));
  }
  JsonReader reader(source);
  Json::sax_parse(text, &reader);
  return std::move(reader.root);
}

Json parse_object(std::string_view text, std::string_view source) {
  Json parsed = parse(text, source);
  if (!parsed.is_object()) fail(source, "this is no JSON object");
  return parsed;
}

Json to_json(const std::vector<PathPart>& path) {
  Json parts = Json::array();
  for (const PathPart& part : path) std::visit([&](const auto& content) { parts.push_back(content); }, part);
  return parts;
}

// Nothing where it is no array of texts and ints.
std::optional<std::vector<PathPart>> any_path_of(const Json& parts, std::string_view source) {
  std::vector<PathPart> path;
  if (!parts.is_array()) return std::nullopt;
  if (parts.size() > kMostPathParts) {
    fail(source, fmt::format("a path in the state has {} parts, more than {}", parts.size(), kMostPathParts));
  }
  for (const Json& part : parts) {
    if (part.is_string()) path.emplace_back(part.get<std::string>());
    if (part.is_number_integer()) path.emplace_back(part.get<int64_t>());
  }
  if (path.size() != parts.size()) return std::nullopt;
  return path;
}
// The same of all places but that of the state itself.
std::optional<std::vector<PathPart>> path_of(const Json& parts, std::string_view source) {
  return parts.empty() ? std::nullopt : any_path_of(parts, source);
}

}  // namespace

std::string encode_objects(const std::vector<NamedObject>& objects) {
  std::string text = "{";
  for (const NamedObject& object : objects) {
    std::string value;
    try {
      value = object_to_json(object.archive, object.name).dump();
    } catch (const Json::type_error&) {  // a text that Python has and Unicode has not
      value = Json{{"$torch.save", to_base64(object.archive)}}.dump();
    }
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", Json(object.name).dump(), value);
  }
  return text + "}";
}

std::vector<NamedObject> decode_objects(std::string_view text, std::string_view source) {
  std::vector<NamedObject> objects;
  const Json parsed = parse_object(text, source);
  for (const auto& [name, value] : parsed.items()) {
    objects.push_back({name, object_from_json(value, fmt::format("{}, {}", source, name))});
  }
  return objects;
}

bool are_plain(const NamedPaths& paths) {
  return std::ranges::all_of(paths, [](const auto& named) {
    return named.second.size() == 1 && named.second.front() == PathPart(named.first);
  });
}

std::string encode_paths(const NamedPaths& paths) {
  Json json = Json::object();
  for (const auto& [name, path] : paths) append(json, name, to_json(path));
  return json.dump();
}

NamedPaths decode_paths(std::string_view text, std::string_view source) {
  NamedPaths paths;
  const Json parsed = parse_object(text, source);
  for (const auto& [name, parts] : parsed.items()) {
    auto path = path_of(parts, source);
    if (!path) fail(source, fmt::format("the path of {} is no array of texts and ints", Json(name).dump()));
    paths.emplace_back(name, std::move(*path));
  }
  return paths;
}

std::string encode_dicts(const std::vector<std::vector<PathPart>>& dicts) {
  Json json = Json::array();
  for (const auto& path : dicts) json.push_back(to_json(path));
  return json.dump();
}

std::vector<std::vector<PathPart>> decode_dicts(std::string_view text, std::string_view source) {
  std::vector<std::vector<PathPart>> dicts;
  const Json parsed = parse(text, source);
  if (!parsed.is_array()) fail(source, "this is no JSON array");
  for (const Json& parts : parsed) {
    auto path = path_of(parts, source);
    if (!path) fail(source, "a path is no array of texts and ints");
    dicts.push_back(std::move(*path));
  }
  return dicts;
}

std::string encode_ordered(const std::vector<OrderedPlace>& ordered) {
  Json json = Json::array();
  for (const OrderedPlace& place : ordered) {
    json.push_back(Json::array({to_json(place.path), value_to_json(place.beside)}));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<OrderedPlace> decode_ordered(std::string_view text, std::string_view source) {
  std::vector<OrderedPlace> ordered;
  const Json parsed = parse(text, source);
  if (!parsed.is_array()) fail(source, "this is no JSON array");
  for (const Json& item : parsed) {
    auto path = item.is_array() && item.size() == 2 ? any_path_of(item[0], source) : std::nullopt;
    if (!path) fail(source, "an OrderedDict's place is no path and what lies beside");
    ordered.push_back({std::move(*path), value_from_json(item[1], source)});
  }
  return ordered;
}

}  // namespace sherd::format
