#include "format/object_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "format/saved.h"
#include "format/unfolded.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kMaxDepth = 500;

Json tagged(const char* tag, Json value) { return Json::object({{tag, std::move(value)}}); }

// Nothing where the value has something that JSON has no form for.
std::optional<Json> to_json(const Value& value, int depth);

std::optional<Json> to_json(const std::vector<Value>& values, int depth) {
  Json list = Json::array();
  for (const Value& value : values) {
    auto item = to_json(value, depth);
    if (!item) return std::nullopt;
    list.push_back(std::move(*item));
  }
  return list;
}

bool is_plain_key(const Value& key) {
  const auto* text = key.as<std::string>();
  return text != nullptr && !text->starts_with('$');
}

std::optional<Json> to_json(const Dict& dict, int depth) {
  if (dict.state) return std::nullopt;
  bool plain = !dict.ordered;
  for (const auto& [key, value] : dict.items) plain = plain && is_plain_key(key);
  Json made = plain ? Json::object() : Json::array();
  for (const auto& [key, value] : dict.items) {
    auto name = to_json(key, depth);
    auto item = to_json(value, depth);
    if (!name || !item) return std::nullopt;
    if (plain) {
      // Keys are different; nlohmann would look through all of them for each new one.
      auto& items = *made.get_ptr<Json::object_t*>();
      static_cast<Json::object_t::Container&>(items).emplace_back(name->get<std::string>(), std::move(*item));
    } else {
      made.push_back(Json::array({std::move(*name), std::move(*item)}));
    }
  }
  return plain ? made : tagged(dict.ordered ? "$ordered" : "$dict", std::move(made));
}

std::optional<Json> to_json(const Value& value, int depth) {
  if (depth > kMaxDepth) return std::nullopt;
  if (value.as<None>() != nullptr) return Json(nullptr);
  if (const auto* boolean = value.as<bool>()) return Json(*boolean);
  if (const auto* integer = value.as<int64_t>()) return Json(*integer);
  if (const auto* number = value.as<double>()) {
    if (std::isfinite(*number)) return Json(*number);
    return tagged("$float", std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf");
  }
  if (const auto* text = value.as<std::string>()) return Json(*text);
  if (const auto* bytes = value.as<Bytes>()) {
    return bytes->array ? std::nullopt : std::optional(tagged("$bytes", to_base64(bytes->data)));
  }
  if (const auto* list = value.as<List>()) return to_json(*list, depth + 1);
  if (const auto* dict = value.as<Dict>()) return to_json(*dict, depth + 1);
  if (const auto* tuple = value.as<Tuple>(); tuple != nullptr && !tuple->size) {
    auto items = to_json(tuple->items, depth + 1);
    return items ? std::optional(tagged("$tuple", std::move(*items))) : std::nullopt;
  }
  return std::nullopt;
}

// JSON has each part as often as it stands there: there may be too much of it.
std::optional<Json> to_json(const Value& value) { return unfolds_too_far(value) ? std::nullopt : to_json(value, 0); }

[[noreturn]] void refuse(std::string_view name, const Json& found) {
  throw std::invalid_argument(
      ErrorText("load", "an object's JSON is not as sherd writes it")
          .fact("in", name)
          .fact("found", found.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200))
          .help("docs/format.md says what is read"));
}

Value from_json(const Json& found, std::string_view name, int depth);

Value from_tagged(const std::string& tag, const Json& content, const Json& whole, std::string_view name, int depth) {
  if (tag == "$tuple" && content.is_array()) {
    Tuple tuple;
    for (const Json& item : content) tuple.items.push_back(from_json(item, name, depth));
    return tuple;
  }
  if (tag == "$float" && content.is_string()) {
    if (content == "nan") return std::nan("");
    if (content == "inf") return HUGE_VAL;
    if (content == "-inf") return -HUGE_VAL;
  }
  if (tag == "$bytes" && content.is_string()) return Bytes{from_base64(content.get_ref<const std::string&>())};
  if ((tag == "$dict" || tag == "$ordered") && content.is_array()) {
    Dict dict;
    dict.ordered = tag == "$ordered";
    std::set<Json> keys;  // as in a pickle, none of the texts and ints stands twice
    for (const Json& item : content) {
      if (!item.is_array() || item.size() != 2) refuse(name, whole);
      const bool is_name = item[0].is_string() || item[0].is_number_integer();
      if (is_name && !keys.insert(item[0]).second) refuse(name, whole);
      dict.items.emplace_back(from_json(item[0], name, depth), from_json(item[1], name, depth));
    }
    return dict;
  }
  refuse(name, whole);
}

Value from_json(const Json& found, std::string_view name, int depth) {
  if (depth > 2 * kMaxDepth) refuse(name, "an object too deep");
  switch (found.type()) {
    case Json::value_t::null:
      return None{};
    case Json::value_t::boolean:
      return found.get<bool>();
    case Json::value_t::number_integer:
      return found.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (found.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) refuse(name, found);
      return found.get<int64_t>();
    case Json::value_t::number_float:
      return found.get<double>();
    case Json::value_t::string:
      return found.get<std::string>();
    case Json::value_t::array: {
      List list;
      for (const Json& item : found) list.push_back(from_json(item, name, depth + 1));
      return list;
    }
    case Json::value_t::object: {
      if (found.size() == 1 && found.begin().key().starts_with('$')) {
        return from_tagged(found.begin().key(), found.begin().value(), found, name, depth + 1);
      }
      Dict dict;
      for (const auto& [key, item] : found.items()) dict.items.emplace_back(key, from_json(item, name, depth + 1));
      return dict;
    }
    default:
      refuse(name, found);
  }
}

}  // namespace

nlohmann::ordered_json object_to_json(std::string_view archive, std::string_view name) {
  const MemorySource source(std::as_bytes(std::span(archive)));
  if (auto made = to_json(read_saved(source, name).value)) return std::move(*made);
  return tagged("$torch.save", to_base64(archive));
}

nlohmann::ordered_json value_to_json(const Value& value) { return to_json(value).value_or(Json(nullptr)); }

Value value_from_json(const nlohmann::ordered_json& found, std::string_view name) { return from_json(found, name, 0); }

std::string object_from_json(const nlohmann::ordered_json& found, std::string_view name) {
  if (found.is_object() && found.size() == 1 && found.begin().key() == "$torch.save" &&
      found.begin().value().is_string()) {
    return from_base64(found.begin().value().get_ref<const std::string&>());
  }
  return archive_of(from_json(found, name, 0));
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) {
      const bool padding = i + j > bytes.size();
      text += padding ? '=' : kDigits[group >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

std::string from_base64(std::string_view text) {
  const auto wrong = [] { return std::invalid_argument(ErrorText("load", "a text is not base64").str()); };
  if (text.size() % 4 != 0) throw wrong();
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t padding = !last || text[i + 3] != '=' ? 0 : text[i + 2] == '=' ? 2 : 1;
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const size_t digit = j < 4 - padding ? kDigits.find(text[i + j]) : 0;
      if (digit == std::string_view::npos) throw wrong();
      group = group << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j < 3 - padding; ++j) bytes += static_cast<char>(group >> (16 - 8 * j) & 255);
  }
  return bytes;
}

}  // namespace sherd::format
