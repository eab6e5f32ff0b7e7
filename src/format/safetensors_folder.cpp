// What several safetensors files are together: the index beside them, and the parts of one tensor in several.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>

#include "format/manifest.h"
#include "format/own_digests.h"
#include "format/relative_path.h"
#include "format/safetensors.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostIndex = 100000000;
constexpr int kMostDepth = 100;
constexpr const char* kSharding = "DCP_SHARDING_INFO";

[[noreturn]] void fail(std::string_view operation, std::string_view source, std::string_view problem,
                       std::string_view tensor = {}) {
  ErrorText text(operation, problem);
  text.fact("in", source);
  if (!tensor.empty()) text.fact("tensor", tensor);
  throw std::invalid_argument(text);
}

/// Bounded in size and depth; a key that stands twice anywhere is refused.
Json parse(std::string_view operation, std::string_view text, std::string_view source) {
  if (text.size() > kMostIndex) fail(operation, source, fmt::format("a JSON text of {} bytes", text.size()));
  // The parser would take it for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail(operation, source, fmt::format("this is no JSON: byte {}", zero + 1));
  }
  std::vector<std::map<std::string, int>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMostDepth) fail(operation, source, fmt::format("JSON deeper than {}", kMostDepth));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && ++keys.back()[value.get<std::string>()] > 1) {
      fail(operation, source, fmt::format("the key {} stands twice", value.dump()));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    fail(operation, source, fmt::format("this is no JSON: byte {}", error.byte));
  } catch (const Json::out_of_range&) {
    fail(operation, source, "a number is too large");
  }
}

}  // namespace

SafetensorsIndexFile decode_safetensors_index(std::span<const std::byte> bytes, std::string_view source) {
  constexpr std::string_view kOperation = "decode_safetensors_index";
  const Json json = parse(kOperation, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    fail(kOperation, source, "it has no weight_map");
  }
  SafetensorsIndexFile index;
  if (json.contains("metadata") && json["metadata"].is_object() && json["metadata"].contains("total_size")) {
    const Json& size = json["metadata"]["total_size"];
    // Some writers divide before they sum up: 1.0e9.
    if (!size.is_number() || !(size.get<double>() >= 0) || size.get<double>() > 9e18) {
      fail(kOperation, source, "total_size is no size");
    }
    index.total_size = size.is_number_float() ? static_cast<int64_t>(size.get<double>()) : size.get<int64_t>();
  }
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) fail(kOperation, source, "a file is no text", name);
    const auto path = file.get<std::string>();
    if (!is_inside(path))
      fail(kOperation, source, fmt::format("a file lies outside of the folder: \"{}\"", path), name);
    index.files.emplace_back(name, path);
  }
  return index;
}

namespace {

// It begins with its digest and ends with spaces. Programs that write an index anew may keep the first, but not these.
constexpr std::string_view kIndexDigest = "\"sherd.digest\": \"";
constexpr size_t kIndexDigits = 32;
constexpr size_t kIndexSpaces = 64;
constexpr size_t kDamagedSpaces = 4;

std::string digest_of_index(std::string text, size_t digits) {
  std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(digits), kIndexDigits, kDigestZero);
  return to_string(digest_of(std::as_bytes(std::span(text))));
}

}  // namespace

void check_safetensors_index(std::span<const std::byte> bytes, std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < kIndexSpaces) return;
  const auto spaces = std::ranges::count(text.substr(text.size() - kIndexSpaces), ' ');
  if (static_cast<size_t>(spaces) < kIndexSpaces - kDamagedSpaces) return;
  const size_t found = text.find(kIndexDigest);
  const size_t digits = found + kIndexDigest.size();
  const bool whole = found != std::string_view::npos && text.size() - digits >= kIndexDigits;
  const std::string expected = whole ? digest_of_index(std::string(text), digits) : std::string("none");
  if (whole && expected == text.substr(digits, kIndexDigits)) return;
  throw std::invalid_argument(
      ErrorText("check_safetensors_index", "the index is damaged: its bytes are not those that were saved")
          .fact("in", source)
          .fact("bytes", fmt::format("0 to {}", text.size()))
          .fact("digest found", expected)
          .help("another copy of it; without it the files beside it say themselves what they hold"));
}

std::string encode_safetensors_index(const SafetensorsIndexFile& index) {
  nlohmann::ordered_json json;
  json["metadata"]["sherd.digest"] = std::string(kIndexDigits, kDigestZero);
  json["metadata"]["total_size"] = index.total_size;
  json["weight_map"] = nlohmann::ordered_json::object();
  std::map<std::string, std::string> sorted(index.files.begin(), index.files.end());
  for (const auto& [name, file] : sorted) json["weight_map"].push_back({name, file});
  std::string text = json.dump(2) + std::string(kIndexSpaces, ' ');
  const size_t digits = text.find(kIndexDigest) + kIndexDigest.size();
  return text.replace(digits, kIndexDigits, digest_of_index(text, digits));
}

std::vector<std::pair<std::string, Dims>> sharding_of(const SafetensorsFile& file, std::string_view source) {
  constexpr std::string_view kOperation = "sharding_of";
  const std::string* const text = file.find_metadata(kSharding);
  if (text == nullptr) return {};
  const Json json = parse(kOperation, *text, source);
  if (!json.is_object()) fail(kOperation, source, "DCP_SHARDING_INFO is no object");
  std::unordered_map<std::string_view, const SafeTensor*> tensors;
  for (const SafeTensor& tensor : file.tensors) tensors.emplace(tensor.name, &tensor);
  std::vector<std::pair<std::string, Dims>> sharding;
  for (const auto& [name, part] : json.items()) {
    if (!part.is_object() || !part.contains("saved_offsets") || !part["saved_offsets"].is_array()) {
      fail(kOperation, source, "saved_offsets is missing", name);
    }
    Dims offsets;
    for (const Json& offset : part["saved_offsets"]) {
      if (!offset.is_number_unsigned() || offset.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        fail(kOperation, source, "an offset is no size", name);
      }
      offsets.push_back(offset.get<int64_t>());
    }
    const auto found = tensors.find(name);
    if (found == tensors.end()) fail(kOperation, source, "DCP_SHARDING_INFO names a tensor that is not there", name);
    if (found->second->sizes.size() != offsets.size()) fail(kOperation, source, "not as many offsets as dims", name);
    sharding.emplace_back(name, std::move(offsets));
  }
  return sharding;
}

std::vector<std::pair<std::string, std::string>> sharding_metadata(
    std::span<const std::pair<std::string, Dims>> offsets) {
  Json json = Json::object();
  for (const auto& [name, offset] : offsets) json[name]["saved_offsets"] = offset;
  return {{kSharding, json.dump()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
}

namespace {

/// Its bytes can be counted, also where parts are far from each other, or a dim is empty.
void check_size(const TensorEntry& tensor, std::string_view source, std::string_view name) {
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t size : tensor.size) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      fail("read_safetensors", source, "an impossible size", name);
    }
  }
}

/// Two parts at one place are one too many, unless they hold nothing.
void check_parts(const MetadataEntry& entry, const Metadata& metadata, std::string_view folder) {
  const auto& tensor = std::get<TensorEntry>(entry.content);
  std::vector<size_t> order;
  for (size_t i = 0; i < tensor.chunk_count(); ++i) {
    if (std::ranges::find(tensor.sizes(i), 0) == tensor.sizes(i).end()) order.push_back(i);
  }
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return std::ranges::lexicographical_compare(tensor.offsets(a), tensor.offsets(b));
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (!std::ranges::equal(tensor.offsets(order[i - 1]), tensor.offsets(order[i]))) continue;
    const auto file = [&](size_t part) { return metadata.files[static_cast<size_t>(tensor.places[order[part]].file)]; };
    fail("read_safetensors", folder, fmt::format("a tensor stands in two files: {} and {}", file(i - 1), file(i)),
         entry.name);
  }
}

}  // namespace

Metadata metadata_of(std::span<const NamedSafetensors> files, std::string_view folder) {
  constexpr std::string_view kOperation = "read_safetensors";
  Metadata metadata;
  std::unordered_map<std::string_view, size_t> entries;
  for (const NamedSafetensors& named : files) {
    const std::string source = fmt::format("{}/{}", folder, named.name);
    metadata.files.push_back(named.name);
    const auto sharding = sharding_of(named.file, source);
    std::unordered_map<std::string_view, const Dims*> offsets;
    for (const auto& [name, offset] : sharding) offsets.emplace(name, &offset);
    for (const SafeTensor& part : named.file.tensors) {
      const auto saved = offsets.find(part.name);
      const Dims offset = saved != offsets.end() ? *saved->second : Dims(part.sizes.size(), 0);
      const auto [found, fresh] = entries.emplace(part.name, metadata.entries.size());
      if (fresh) {
        TensorEntry tensor;
        tensor.dtype = part.dtype;
        tensor.size = Dims(part.sizes.size(), 0);
        metadata.entries.push_back({part.name, std::move(tensor)});
      }
      auto& tensor = std::get<TensorEntry>(metadata.entries[found->second].content);
      if (tensor.dtype != part.dtype || tensor.size.size() != part.sizes.size()) {
        fail(kOperation, source, "a tensor has another dtype or ndim in another file", part.name);
      }
      for (size_t d = 0; d < offset.size(); ++d) {
        int64_t end = 0;
        if (__builtin_add_overflow(offset[d], part.sizes[d], &end))
          fail(kOperation, source, "an impossible size", part.name);
        tensor.size[d] = std::max(tensor.size[d], end);
      }
      check_size(tensor, source, part.name);
      tensor.add(offset, part.sizes,
                 {.file = static_cast<int32_t>(metadata.files.size() - 1),
                  .offset = part.offset,
                  .length = part.data_bytes()});
    }
  }
  for (const MetadataEntry& entry : metadata.entries) check_parts(entry, metadata, folder);
  return metadata;
}

}  // namespace sherd::format
