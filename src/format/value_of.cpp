#include "format/value_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

#include "sherd/error.h"

namespace sherd::format {
namespace {

using Kind = Node::Kind;

constexpr size_t kMostDims = 64;  // as in torch

bool is_builtin(const PickleGraph::GlobalName& global, std::string_view name) { return global.is("builtins", name); }

}  // namespace

class Values::Maker {
 public:
  Maker(const PickleGraph& graph, const UnpickleOptions& options, MemoryBudget& budget)
      : graph_(graph), options_(options), budget_(budget) {}

  Value make(const Node& node) {
    spend(sizeof(Value));
    switch (node.kind) {
      case Kind::unset:
      case Kind::none:
        return None{};
      case Kind::boolean:
        return node.flag;
      case Kind::integer:
        return node.integer;
      case Kind::real:
        return node.real;
      case Kind::big:
        return BigInt{text(node)};
      case Kind::text:
        return text(node);
      case Kind::bytes:
        return Bytes{text(node), node.flag};
      case Kind::global:
        return named(graph_.global(node));
      default:
        return make_container(node);
    }
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw std::invalid_argument(ErrorText(options_.operation, problem).fact("in", options_.source));
  }

  void spend(size_t bytes) { budget_.spend(bytes); }

  std::string text(const Node& node) {
    spend(node.length);
    return std::string(node.text());
  }

  // Two bytes name a class that may have a name of megabytes.
  Global named(const PickleGraph::GlobalName& global) {
    spend(global.module.size() + global.name.size());
    return {std::string(global.module), std::string(global.name)};
  }

  /// Each container is made once, so that what was one object stays one.
  Value make_container(const Node& node) {
    if (made_.empty()) made_.resize(2 * graph_.container_count());
    Value& place = made_[2 * node.index + (node.is(Kind::tuple) && node.flag ? 1 : 0)];
    if (place.as<None>() != nullptr) place = make_new(node);
    return place;
  }

  Value make_new(const Node& node) {
    switch (node.kind) {
      case Kind::list:
        return List(make_items(node));
      case Kind::tuple:
        return Tuple{make_items(node), node.flag};
      case Kind::set:
      case Kind::frozenset:
        return Set{make_items(node), node.is(Kind::frozenset)};
      case Kind::dict:
        return make_dict(node);
      case Kind::persistent:
        return Object{.type = {"", "persistent_id"}, .arguments = make_items(node)};
      default:
        return make_object(node);
    }
  }

  std::vector<Value> make_items(const Node& node) {
    const auto items = graph_.items(node);
    spend(64 + items.size() * sizeof(Value));
    std::vector<Value> values;
    values.reserve(items.size());
    for (const Node& item : items) values.push_back(make(item));
    return values;
  }

  Dict make_dict(const Node& node) {
    const auto items = graph_.items(node);
    spend(64 + items.size() * sizeof(Value));
    Dict dict;
    dict.items.reserve(items.size() / 2);
    std::unordered_set<std::string_view> texts;
    std::unordered_set<int64_t> numbers;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      // Python takes the last one of two, other readers the first: nobody may be misled.
      const bool fresh = items[i].is(Kind::text)      ? texts.insert(items[i].text()).second
                         : items[i].is(Kind::integer) ? numbers.insert(items[i].integer).second
                                                      : true;
      Value key = make(items[i]);
      if (!fresh) fail(fmt::format("a dict has the key {} twice", to_string(key)));
      dict.items.emplace_back(std::move(key), make(items[i + 1]));
    }
    return dict;
  }

  Value make_object(const Node& node) {
    if (graph_.called(node)) {
      const auto& type = graph_.type(node);
      const auto arguments = graph_.items(graph_.arguments(node));
      if (type.is("collections", "OrderedDict")) {
        if (arguments.empty()) return make_ordered(node);
      } else if (graph_.state(node) == nullptr && graph_.extra(node) == nullptr) {
        if (auto value = plain(type, arguments)) return *std::move(value);
        if (auto tensor = tensor_of(type, arguments)) return *std::move(tensor);
      }
    }
    const auto& type = graph_.type(node);
    spend(sizeof(Object));
    Object object{.type = named(type), .called = graph_.called(node), .arguments = make_items(graph_.arguments(node))};
    if (const Node* state = graph_.state(node)) object.state = std::make_shared<Value>(make(*state));
    if (const auto* extra = graph_.extra(node)) {
      if (extra->keywords.is(Kind::dict)) object.keywords = make_dict(extra->keywords);
      if (extra->appended.is(Kind::list)) object.appended = make_items(extra->appended);
      if (extra->items.is(Kind::dict)) object.items = make_dict(extra->items);
    }
    return object;
  }

  Value make_ordered(const Node& node) {
    Dict dict;
    const auto* extra = graph_.extra(node);
    if (extra != nullptr && extra->items.is(Kind::dict)) dict = make_dict(extra->items);
    if (extra != nullptr && extra->appended.is(Kind::list)) fail("a dict is appended to");
    dict.ordered = true;
    if (const Node* state = graph_.state(node)) dict.state = std::make_shared<Value>(make(*state));
    return dict;
  }

  /// What Python writes as a call because the protocol has no opcode for it.
  std::optional<Value> plain(const PickleGraph::GlobalName& type, std::span<const Node> arguments) {
    if (type.is("_codecs", "encode")) {
      if (arguments.size() != 2 || !arguments[0].is(Kind::text) || !arguments[1].is(Kind::text)) return std::nullopt;
      if (arguments[1].text() != "latin1" && arguments[1].text() != "latin-1") return std::nullopt;
      spend(arguments[0].length);
      return Bytes{latin1(arguments[0].text())};
    }
    if (is_builtin(type, "bytes") && arguments.empty()) return Bytes{};
    if (is_builtin(type, "bytearray")) {
      if (arguments.empty()) return Bytes{.data = "", .array = true};
      if (arguments.size() != 1) return std::nullopt;
      const Value held = make(arguments[0]);
      const auto* bytes = held.as<Bytes>();
      if (bytes == nullptr) return std::nullopt;
      spend(bytes->data.size());
      return Bytes{bytes->data, true};
    }
    if (is_builtin(type, "set") || is_builtin(type, "frozenset")) {
      if (arguments.empty()) return Set{.items = {}, .frozen = type.name == "frozenset"};
      if (arguments.size() != 1 || !(arguments[0].is(Kind::list) || arguments[0].is(Kind::tuple))) return std::nullopt;
      return Set{make_items(arguments[0]), type.name == "frozenset"};
    }
    if (is_builtin(type, "complex")) {
      if (arguments.size() != 2 || !arguments[0].is(Kind::real) || !arguments[1].is(Kind::real)) return std::nullopt;
      return std::complex<double>(arguments[0].real, arguments[1].real);
    }
    return std::nullopt;
  }

  std::string latin1(std::string_view text) const {
    std::string bytes;
    bytes.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c < 0x80) {
        bytes.push_back(text[i]);
        continue;
      }
      if (c > 0xC3) fail("a byte above 255");  // the text is UTF-8, so that another byte follows
      bytes.push_back(static_cast<char>((c & 3U) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3FU)));
    }
    return bytes;
  }

  // Tensors

  std::optional<Value> tensor_of(const PickleGraph::GlobalName& type, std::span<const Node> arguments) {
    if (type.module == "torch._utils") {
      if (type.name == "_rebuild_tensor" && arguments.size() == 4) return stored(arguments, nullptr);
      if (type.name == "_rebuild_tensor_v2" && (arguments.size() == 6 || arguments.size() == 7)) {
        return arguments.size() == 6 || is_empty(arguments[6]) ? stored(arguments, nullptr) : std::nullopt;
      }
      if (type.name == "_rebuild_tensor_v3" && (arguments.size() == 7 || arguments.size() == 8)) {
        return arguments.size() == 7 || is_empty(arguments[7]) ? stored(arguments, &arguments[6]) : std::nullopt;
      }
      if (type.name == "_rebuild_meta_tensor_no_storage" && arguments.size() == 4) return meta(arguments);
      if ((type.name == "_rebuild_parameter" && arguments.size() == 3) ||
          (type.name == "_rebuild_parameter_with_state" && arguments.size() == 4 && is_empty(arguments[3]))) {
        return parameter(arguments);
      }
    }
    // A tensor or parameter with attributes of its own, which are left behind.
    if (type.is("torch._tensor", "_rebuild_from_type_v2") && arguments.size() == 4 && arguments[0].is(Kind::global) &&
        arguments[1].is(Kind::global) && arguments[2].is(Kind::tuple)) {
      const auto& tensor_class = graph_.global(arguments[1]);
      if (tensor_class.is("torch", "Tensor") || tensor_class.is("torch.nn.parameter", "Parameter") ||
          tensor_class.is("torch.nn.parameter", "Buffer")) {
        return tensor_of(graph_.global(arguments[0]), graph_.items(arguments[2]));
      }
    }
    return std::nullopt;
  }

  bool is_empty(const Node& node) const {
    return node.is(Kind::none) || (node.is(Kind::dict) && graph_.items(node).empty());
  }

  std::optional<Value> stored(std::span<const Node> arguments, const Node* dtype) {
    if (!arguments[0].is(Kind::persistent)) return std::nullopt;
    const Node& id = graph_.items(arguments[0])[0];
    if (!id.is(Kind::tuple)) return std::nullopt;
    const auto storage = graph_.items(id);
    if (storage.size() < 5 || !storage[0].is(Kind::text) || storage[0].text() != "storage" ||
        !storage[1].is(Kind::global) || !storage[2].is(Kind::text) || !storage[3].is(Kind::text) ||
        !storage[4].is(Kind::integer)) {
      return std::nullopt;
    }
    const auto& storage_class = graph_.global(storage[1]);
    const bool untyped = storage_class.is("torch.storage", "UntypedStorage");
    const auto found = dtype != nullptr ? dtype_of(*dtype) : dtype_from_storage(storage_class.name);
    if (!found || untyped != (dtype != nullptr)) return std::nullopt;

    TensorRef tensor;
    tensor.dtype = *found;
    const int64_t unit = untyped ? 1 : size_of(*found);
    if (storage[4].integer < 0 || __builtin_mul_overflow(storage[4].integer, unit, &tensor.storage_bytes))
      fail("a tensor's storage has an impossible size");
    tensor.storage = text(storage[2]);
    tensor.device = text(storage[3]);
    tensor.offset = number(arguments[1]);
    tensor.sizes = numbers(arguments[2]);
    tensor.strides = numbers(arguments[3]);
    tensor.requires_grad = arguments.size() > 4 && arguments[4].is(Kind::boolean) && arguments[4].flag;
    check_extent(tensor);
    return tensor;
  }

  std::optional<Value> meta(std::span<const Node> arguments) {
    const auto dtype = dtype_of(arguments[0]);
    if (!dtype) return std::nullopt;
    TensorRef tensor;
    tensor.dtype = *dtype;
    tensor.sizes = numbers(arguments[1]);
    tensor.strides = numbers(arguments[2]);
    tensor.requires_grad = arguments[3].is(Kind::boolean) && arguments[3].flag;
    tensor.device = "meta";
    tensor.meta = true;
    if (tensor.sizes.size() != tensor.strides.size()) fail("a tensor has not as many strides as sizes");
    check_size(tensor);
    return tensor;
  }

  std::optional<Value> parameter(std::span<const Node> arguments) {
    const Value data = make(arguments[0]);
    const auto* tensor = data.as<TensorRef>();
    if (tensor == nullptr) return std::nullopt;
    TensorRef made = *tensor;
    made.parameter = true;
    made.requires_grad = arguments[1].is(Kind::boolean) && arguments[1].flag;
    return made;
  }

  std::optional<DType> dtype_of(const Node& node) const {
    if (!node.is(Kind::global) || graph_.global(node).module != "torch") return std::nullopt;
    return dtype_from_torch(graph_.global(node).name);
  }

  int64_t number(const Node& node) const {
    if (!node.is(Kind::integer) || node.integer < 0) fail("a tensor's numbers are no sizes");
    return node.integer;
  }

  Dims numbers(const Node& node) {
    if (!node.is(Kind::tuple)) fail("a tensor's sizes are no tuple");
    const auto items = graph_.items(node);
    if (items.size() > kMostDims) fail(fmt::format("a tensor has {} dims, more than {}", items.size(), kMostDims));
    spend(8 * items.size());
    Dims dims;
    for (const Node& item : items) dims.push_back(number(item));
    return dims;
  }

  /// Its bytes can be counted, which strides of 0 do not bound.
  void check_size(const TensorRef& tensor) const {
    int64_t bytes = size_of(tensor.dtype);
    for (const int64_t size : tensor.sizes) {
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) fail("a tensor has an impossible size");
    }
  }

  /// The last element lies in the storage.
  void check_extent(const TensorRef& tensor) const {
    if (tensor.sizes.size() != tensor.strides.size()) fail("a tensor has not as many strides as sizes");
    check_size(tensor);
    if (std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end()) return;
    int64_t last = tensor.offset;
    bool outside = false;
    for (size_t d = 0; d < tensor.sizes.size(); ++d) {
      int64_t reach = 0;
      outside |= __builtin_mul_overflow(tensor.sizes[d] - 1, tensor.strides[d], &reach);
      outside |= __builtin_add_overflow(last, reach, &last);
    }
    if (outside || last >= tensor.storage_bytes / size_of(tensor.dtype)) {
      throw std::invalid_argument(
          ErrorText(options_.operation, "a tensor lies outside of its storage")
              .fact("in", options_.source)
              .fact("tensor",
                    fmt::format("{}{}, strides {}, offset {}", names_of(tensor.dtype).text,
                                sherd::to_string(tensor.sizes), sherd::to_string(tensor.strides), tensor.offset))
              .fact("storage", fmt::format("{} of {} bytes", tensor.storage, tensor.storage_bytes)));
    }
  }

  const PickleGraph& graph_;
  const UnpickleOptions& options_;
  MemoryBudget& budget_;
  std::vector<Value> made_;  // by container; a tuple has a second place for the torch.Size of it
};

MemoryBudget::MemoryBudget(const UnpickleOptions& options, size_t input_size)
    : options_(options), left_(256 * input_size + (size_t{16} << 20)) {}

void MemoryBudget::refuse() const {
  throw std::invalid_argument(
      ErrorText(options_.operation, "the values would need much more memory than the pickle has bytes")
          .fact("in", options_.source));
}

Values::Values(const PickleGraph& graph, const UnpickleOptions& options, MemoryBudget& budget)
    : maker_(std::make_unique<Maker>(graph, options, budget)) {}
Values::~Values() = default;

Value Values::of(const Node& node) { return maker_->make(node); }

}  // namespace sherd::format
