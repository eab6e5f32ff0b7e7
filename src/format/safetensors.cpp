#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "format/pickle_text.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr uint64_t kMostHeader = 100000000;  // the library's own bound
constexpr size_t kMostDims = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

[[noreturn]] void fail(std::string_view source, std::string_view problem, std::string_view tensor = {}) {
  ErrorText text("read_safetensors", problem);
  text.fact("in", source);
  if (!tensor.empty()) text.fact("tensor", tensor);
  throw std::invalid_argument(text);
}

/// Two elements to a byte: the file counts elements, torch counts bytes.
bool is_packed(DType dtype) { return dtype == DType::f4_e2m1fn_x2; }

/// The library writes tensors in this order of their dtypes, so that each is aligned where the ones before are.
size_t place_of(DType dtype) {
  constexpr DType kOrder[] = {DType::u64,         DType::i64,        DType::f64,          DType::c64,
                              DType::f32,         DType::u32,        DType::i32,          DType::bf16,
                              DType::f16,         DType::u16,        DType::i16,          DType::f8_e5m2fnuz,
                              DType::f8_e4m3fnuz, DType::f8_e8m0fnu, DType::f8_e4m3fn,    DType::f8_e5m2,
                              DType::i8,          DType::u8,         DType::f4_e2m1fn_x2, DType::boolean};
  return static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), dtype) - std::begin(kOrder));
}

/// Follows the header event by event, so that nothing is built that the format does not have.
class HeaderReader {
 public:
  // NOLINTBEGIN(readability-identifier-naming): nlohmann's names
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;
  // NOLINTEND(readability-identifier-naming)

  HeaderReader(SafetensorsFile& file, std::string_view source) : file_(file), source_(source) {}

  struct Ends {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  std::vector<Ends> ends;  // of each tensor, from the beginning of the data

  // NOLINTBEGIN(readability-identifier-naming): nlohmann's names
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a bool"); }
  bool number_integer(number_integer_t) { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) { return unexpected("a number with a fraction"); }
  bool binary(binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (depth_ != 3) return unexpected("a number");
    if (field_ == Field::shape) {
      if (shape_.size() == kMostDims) fail(source_, fmt::format("more than {} dims", kMostDims), name_);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(source_, "an impossible size", name_);
      shape_.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_.size() == 2) fail(source_, "data_offsets are more than two", name_);
      offsets_.push_back(value);
    }
    return true;
  }

  bool string(string_t& value) {
    if (depth_ == 2 && in_metadata_) {
      if (!keys_.insert(key_).second) fail(source_, fmt::format("__metadata__ has {} twice", key_));
      file_.metadata.emplace_back(key_, std::move(value));
      return true;
    }
    if (depth_ != 2 || field_ != Field::dtype) return unexpected("a text");
    dtype_ = dtype_from_safetensors(value);
    if (!dtype_) fail(source_, fmt::format("the dtype {} is not known", value), name_);
    return true;
  }

  bool start_object(size_t) {
    if (depth_ == 0 || depth_ == 1) {
      if (depth_ == 1) begin_entry();
      ++depth_;
      return true;
    }
    return unexpected("an object");
  }
  bool end_object() {
    if (--depth_ == 1 && !in_metadata_) end_tensor();
    return true;
  }
  bool start_array(size_t) {
    if (depth_ != 2 || in_metadata_ || field_ == Field::dtype) return unexpected("an array");
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }

  bool key(string_t& value) {
    if (depth_ == 1) {
      name_ = std::move(value);
      return true;
    }
    if (in_metadata_) {
      key_ = std::move(value);
      return true;
    }
    const auto field = value == "dtype"          ? Field::dtype
                       : value == "shape"        ? Field::shape
                       : value == "data_offsets" ? Field::data_offsets
                                                 : Field::none;
    if (field == Field::none) fail(source_, fmt::format("the field {} is not known", value), name_);
    if ((seen_ & 1U << static_cast<int>(field)) != 0)
      fail(source_, fmt::format("the field {} stands twice", value), name_);
    seen_ |= 1U << static_cast<int>(field);
    field_ = field;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail(source_, fmt::format("its header is no JSON: byte {}", position));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  enum class Field { none, dtype, shape, data_offsets };

  [[noreturn]] bool unexpected(std::string_view what) const {
    fail(source_, fmt::format("its header has {} where none belongs", what), name_);
  }

  void begin_entry() {
    in_metadata_ = name_ == kMetadataKey;
    if (!names_.insert(name_).second) fail(source_, "a name stands twice", name_);
    dtype_.reset();
    shape_.clear();
    offsets_.clear();
    seen_ = 0;
    field_ = Field::none;
  }

  void end_tensor() {
    if (!dtype_ || offsets_.size() != 2 || (seen_ & 1U << static_cast<int>(Field::shape)) == 0) {
      fail(source_, "dtype, shape or data_offsets is missing", name_);
    }
    SafeTensor tensor{.name = name_, .dtype = *dtype_, .sizes = shape_};
    if (is_packed(*dtype_)) {
      if (shape_.empty() || shape_.back() % 2 != 0) fail(source_, "half bytes that fill no byte", name_);
      tensor.sizes.back() /= 2;
    }
    int64_t bytes = size_of(*dtype_);
    for (const int64_t size : tensor.sizes) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) fail(source_, "an impossible size", name_);
    }
    if (offsets_[1] < offsets_[0] || offsets_[1] - offsets_[0] != static_cast<uint64_t>(bytes)) {
      throw std::invalid_argument(ErrorText("read_safetensors", "a tensor's place is not as large as the tensor")
                                      .fact("in", source_)
                                      .fact("tensor", name_)
                                      .fact("data_offsets", fmt::format("{} to {}", offsets_[0], offsets_[1]))
                                      .fact("needed", fmt::format("{} bytes for {}{}", bytes, names_of(*dtype_).text,
                                                                  sherd::to_string(tensor.sizes))));
    }
    file_.tensors.push_back(std::move(tensor));
    ends.push_back({offsets_[0], offsets_[1]});
  }

  SafetensorsFile& file_;
  std::string_view source_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;
  std::string key_;
  Field field_ = Field::none;
  unsigned seen_ = 0;
  std::optional<DType> dtype_;
  Dims shape_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> keys_;
};

/// Without holes, so that no bytes hide in the file.
void check_places(SafetensorsFile& file, const std::vector<HeaderReader::Ends>& ends, uint64_t data,
                  std::string_view source) {
  std::vector<size_t> order(ends.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(ends[a].begin, ends[a].end) < std::pair(ends[b].begin, ends[b].end);
  });
  uint64_t at = 0;
  std::vector<SafeTensor> sorted;
  for (const size_t i : order) {
    if (ends[i].begin != at) {
      fail(source,
           fmt::format("{}: bytes {} to {}", ends[i].begin < at ? "tensors overlap" : "a hole between tensors",
                       std::min(at, ends[i].begin), std::max(at, ends[i].begin)),
           file.tensors[i].name);
    }
    at = ends[i].end;
    file.tensors[i].offset = static_cast<int64_t>(data + ends[i].begin);
    sorted.push_back(std::move(file.tensors[i]));
  }
  if (at != static_cast<uint64_t>(file.size) - data) {
    throw std::invalid_argument(
        ErrorText("read_safetensors", "the tensors do not end where the file ends")
            .fact("in", source)
            .fact("tensors", fmt::format("{} bytes", at))
            .fact("file", fmt::format("{} bytes behind the header", static_cast<uint64_t>(file.size) - data)));
  }
  file.tensors = std::move(sorted);
}

}  // namespace

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  for (const SafeTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const std::string* SafetensorsFile::find_metadata(std::string_view name) const {
  for (const auto& [key, value] : metadata) {
    if (key == name) return &value;
  }
  return nullptr;
}

SafetensorsFile read_safetensors(const ByteSource& source, std::string_view name) {
  SafetensorsFile file;
  file.size = source.size();
  if (file.size < 8) fail(name, "this is no safetensors file: it is too short");
  uint64_t length = 0;
  source.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMostHeader)
    fail(name, fmt::format("this is no safetensors file: its header would have {} bytes", length));
  if (length > static_cast<uint64_t>(file.size) - 8) fail(name, "its header is cut off");
  std::string header(length, '\0');
  source.read(8, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) fail(name, "this is no safetensors file: its header is no JSON object");
  // The parser would take it for the end.
  if (const size_t zero = header.find('\0'); zero != std::string::npos) {
    fail(name, fmt::format("its header is no JSON: byte {}", zero + 1));
  }
  HeaderReader reader(file, name);
  nlohmann::json::sax_parse(header, &reader);
  check_places(file, reader.ends, 8 + length, name);
  return file;
}

std::string lay_out_safetensors(SafetensorsFile& file, size_t spaces) {
  const auto refuse = [](std::string_view problem, std::string_view tensor) {
    throw std::invalid_argument(ErrorText("lay_out_safetensors", problem).fact("tensor", tensor));
  };
  std::sort(file.tensors.begin(), file.tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(place_of(a.dtype), std::string_view(a.name)) <
           std::pair(place_of(b.dtype), std::string_view(b.name));
  });
  // Written by hand: the order of the keys counts.
  const auto quoted = [&](const std::string& text) {
    if (!is_utf8(text)) refuse("a name or text is not UTF-8", "");
    return nlohmann::json(text).dump();
  };
  std::string header = "{";
  std::unordered_set<std::string_view> names;
  if (!file.metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : file.metadata) {
      if (!names.insert(key).second) refuse("a key of __metadata__ stands twice", key);
      header += (header.back() == '{' ? "" : ",") + quoted(key) + ":" + quoted(value);
    }
    header += "}";
  }
  names.clear();
  int64_t at = 0;
  for (SafeTensor& tensor : file.tensors) {
    const std::string_view dtype = names_of(tensor.dtype).safetensors;
    if (dtype.empty()) refuse(fmt::format("safetensors has no dtype {}", names_of(tensor.dtype).torch), tensor.name);
    if (tensor.name == kMetadataKey || !names.insert(tensor.name).second) refuse("a name stands twice", tensor.name);
    Dims shape = tensor.sizes;
    if (is_packed(tensor.dtype)) {
      if (shape.empty()) refuse("half bytes that fill no byte", tensor.name);
      shape.back() *= 2;
    }
    tensor.offset = at;
    header += header.size() == 1 ? "" : ",";
    header += quoted(tensor.name) + fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", dtype,
                                                fmt::join(shape, ","), at, at + tensor.data_bytes());
    at += tensor.data_bytes();
  }
  header += "}";
  header.resize((header.size() + spaces + 7) / 8 * 8, ' ');
  if (header.size() > kMostHeader) refuse(fmt::format("a header of {} bytes", header.size()), "");
  for (SafeTensor& tensor : file.tensors) tensor.offset += static_cast<int64_t>(8 + header.size());
  file.size = at + static_cast<int64_t>(8 + header.size());
  const auto length = static_cast<uint64_t>(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header;
}

}  // namespace sherd::format
