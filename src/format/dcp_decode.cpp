#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "format/dcp.h"
#include "format/number_keys.h"
#include "format/pickle_graph.h"
#include "format/relative_path.h"
#include "format/value_of.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

using Kind = Node::Kind;
using GlobalName = PickleGraph::GlobalName;

/// The classes and functions that may stand in a `.metadata`.
enum class Class : uint8_t {
  unknown,
  metadata,
  tensor,
  properties,
  chunk,
  bytes,
  index,
  storage_info,
  storage_meta,
  memory_format,
  layout,
  path,
  plain
};

struct Known {
  Class meaning;
  std::string_view module;
  std::string_view name;
};
constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFilesystem = "torch.distributed.checkpoint.filesystem";
constexpr std::string_view kSharded = "torch.distributed._shard.sharded_tensor.metadata";  // before PyTorch 2.3

// clang-format off
constexpr Known kKnown[] = {
    {Class::metadata,      kMetadata,             "Metadata"},
    {Class::tensor,        kMetadata,             "TensorStorageMetadata"},
    {Class::properties,    kMetadata,             "TensorProperties"},
    {Class::properties,    kSharded,              "TensorProperties"},
    {Class::chunk,         kMetadata,             "ChunkStorageMetadata"},
    {Class::bytes,         kMetadata,             "BytesStorageMetadata"},
    {Class::index,         kMetadata,             "MetadataIndex"},
    {Class::storage_info,  kFilesystem,           "_StorageInfo"},
    {Class::storage_meta,  kMetadata,             "StorageMeta"},
    {Class::memory_format, kMetadata,             "_MEM_FORMAT_ENCODING"},
    {Class::memory_format, kSharded,              "MEM_FORMAT_ENCODING"},
    {Class::layout,        "torch.serialization", "_get_layout"},
    {Class::path,          "pathlib",             "PosixPath"},
    {Class::path,          "pathlib",             "WindowsPath"},
    {Class::path,          "pathlib",             "PurePosixPath"},
    {Class::path,          "pathlib._local",      "PosixPath"},
    {Class::path,          "pathlib._local",      "WindowsPath"},
    {Class::path,          "pathlib._local",      "PurePosixPath"},
    {Class::plain,         "torch",               "Size"},
    {Class::plain,         "collections",         "OrderedDict"},
    {Class::plain,         "_codecs",             "encode"},
};
// clang-format on

Class class_of(std::string_view module, std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.name == name && known.module == module) return known.meaning;
  }
  // What Python calls for want of an opcode.
  constexpr std::string_view kPlain[] = {"set", "frozenset", "bytearray", "bytes", "complex"};
  const bool plain = module == "builtins" && std::ranges::find(kPlain, name) != std::end(kPlain);
  return plain || (module == "torch" && dtype_from_torch(name)) ? Class::plain : Class::unknown;
}

class Decoder {
 public:
  Decoder(std::span<const std::byte> bytes, std::string_view source)
      : options_{.operation = "decode_metadata",
                 .source = source,
                 .allowed =
                     [](const Global& global) { return class_of(global.module, global.name) != Class::unknown; }},
        graph_(read_pickle(bytes, options_)),
        budget_(options_, bytes.size()),
        values_(graph_, options_, budget_) {
    for (const GlobalName& global : graph_.globals()) classes_.push_back(class_of(global.module, global.name));
  }

  Metadata decode() {
    const Node& state = state_of(graph_.root, Class::metadata, "the file");
    read_entries(*need(state, "state_dict_metadata"));
    if (const Node* data = find(state, "planner_data")) read_planner_data(*data);
    if (const Node* data = find(state, "storage_data")) read_storage(*data);
    if (const Node* meta = find(state, "storage_meta")) read_storage_meta(*meta);
    const Node* version = find(state, "version");
    metadata_.version = version != nullptr ? std::string(text(*version, "version")) : std::string();
    if (const Node* manifest = find(state, "sherd_manifest")) read_manifest_name(*manifest);
    if (const Node* dicts = find(state, "sherd_dicts")) read_dicts(*dicts);
    if (metadata_.paths) metadata_.paths = with_number_keys(std::move(*metadata_.paths), metadata_.dicts);
    if (const Node* ordered = find(state, "sherd_ordered")) read_ordered(*ordered);
    if (const Node* shared = find(state, "sherd_shared")) read_shared(*shared);
    return std::move(metadata_);
  }

 private:
  [[noreturn]] void fail(std::string_view problem, std::string_view entry = {}) const {
    ErrorText text(options_.operation, problem);
    text.fact("in", options_.source);
    if (!entry.empty()) text.fact("entry", entry);
    throw std::invalid_argument(text);
  }

  // Parts of the graph

  bool is(const Node& node, Class wanted) const {
    return node.is(Kind::object) && classes_[graph_.type_number(node)] == wanted;
  }
  /// The state of an object of the wanted class.
  const Node& state_of(const Node& node, Class wanted, std::string_view what) const {
    if (!is(node, wanted)) fail(fmt::format("{} is no {}", what, name_of(wanted)));
    const Node* state = graph_.state(node);
    if (state == nullptr) fail(fmt::format("a {} has no fields", name_of(wanted)));
    return *state;
  }
  static std::string_view name_of(Class wanted) {
    for (const Known& known : kKnown) {
      if (known.meaning == wanted) return known.name;
    }
    return "object";
  }

  std::span<const Node> pairs(const Node& node, std::string_view what) const {
    if (node.is(Kind::dict)) return graph_.items(node);
    if (node.is(Kind::object) && graph_.type(node).is("collections", "OrderedDict")) {
      const auto* extra = graph_.extra(node);
      if (extra == nullptr || !extra->items.is(Kind::dict)) return {};
      return graph_.items(extra->items);
    }
    fail(fmt::format("{} is no dict", what));
  }
  /// A field by its name; null where there is none or it is None: older files have fewer. Of two Python takes the last
  /// one: nobody may be misled.
  const Node* find(const Node& state, std::string_view name) const {
    if (!state.is(Kind::dict)) fail("an object's fields are no dict");
    const auto items = graph_.items(state);
    budget_.spend(items.size() * sizeof(Node));
    const Node* found = nullptr;
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::text) || items[i].text() != name) continue;
      if (found != nullptr) fail(fmt::format("the field {} stands twice", name), entry_);
      found = &items[i + 1];
    }
    return found == nullptr || found->is(Kind::none) ? nullptr : found;
  }
  const Node* need(const Node& state, std::string_view name) const {
    const Node* found = find(state, name);
    if (found == nullptr) fail(fmt::format("the field {} is missing", name), entry_);
    return found;
  }
  std::string_view text(const Node& node, std::string_view what) const {
    if (!node.is(Kind::text)) fail(fmt::format("{} is no text", what), entry_);
    return node.text();
  }
  int64_t count(const Node& node, std::string_view what) const {
    if (!node.is(Kind::integer)) fail(fmt::format("{} is no int", what), entry_);
    if (node.integer < 0) fail(fmt::format("{} is negative: {}", what, node.integer), entry_);
    return node.integer;
  }
  bool flag(const Node& node) const { return node.is(Kind::boolean) && node.flag; }
  std::span<const Node> sequence(const Node& node, std::string_view what) const {
    if (!node.is(Kind::tuple) && !node.is(Kind::list)) fail(fmt::format("{} is no tuple or list", what), entry_);
    return graph_.items(node);
  }

  std::string copied(std::string_view text) const {
    budget_.spend(text.size());
    return std::string(text);
  }
  /// Counts, of which there are `ndim`.
  void add_counts(std::span<const Node> nodes, std::string_view what, Dims& counts) const {
    budget_.spend(nodes.size() * sizeof(int64_t));
    for (const Node& node : nodes) counts.push_back(count(node, what));
  }
  void check_ndim(size_t ndim) const {
    constexpr size_t kMostDims = 64;  // as in torch
    if (ndim > kMostDims) fail(fmt::format("a tensor has {} dims, more than {}", ndim, kMostDims), entry_);
  }

  // state_dict_metadata

  void read_entries(const Node& node) {
    const auto items = pairs(node, "state_dict_metadata");
    metadata_.entries.reserve(items.size() / 2);
    numbers_.reserve(items.size() / 2);
    for (size_t i = 0; i < items.size(); i += 2) {
      const std::string_view name = text(items[i], "a name");
      entry_ = name;
      if (!numbers_.emplace(name, i / 2).second) fail("an entry stands twice", name);
      budget_.spend(sizeof(MetadataEntry));
      MetadataEntry& entry = metadata_.entries.emplace_back(MetadataEntry{copied(name), BytesEntry{}});
      if (is(items[i + 1], Class::bytes)) continue;
      entry.content = read_tensor(state_of(items[i + 1], Class::tensor, "an entry"));
    }
    entry_ = {};
  }

  TensorEntry read_tensor(const Node& state) {
    TensorEntry tensor;
    const auto sizes = sequence(*need(state, "size"), "a size");
    check_ndim(sizes.size());
    add_counts(sizes, "a size", tensor.size);
    read_properties(*need(state, "properties"), tensor);
    int64_t bytes = size_of(tensor.dtype);
    for (const int64_t size : tensor.size) {
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes))
        fail("a tensor has an impossible size", entry_);
    }
    const Node& chunks = *need(state, "chunks");
    const auto nodes = sequence(chunks, "the list of chunks");
    budget_.spend(nodes.size() * (sizeof(Place) + 2 * tensor.size.size() * sizeof(int64_t)));
    tensor.numbers.reserve(2 * nodes.size() * tensor.size.size());
    tensor.places.resize(nodes.size());
    for (const Node& chunk : nodes) {
      const Node& fields = state_of(chunk, Class::chunk, "a chunk");
      add_numbers(tensor, *need(fields, "offsets"));
      add_numbers(tensor, *need(fields, "sizes"));
      check_chunk(tensor, tensor.numbers.size() / (2 * std::max<size_t>(1, tensor.size.size())));
    }
    return tensor;
  }

  void add_numbers(TensorEntry& tensor, const Node& node) const {
    const auto numbers = sequence(node, "a chunk's place");
    if (numbers.size() != tensor.size.size()) {
      fail(fmt::format("a chunk has {} dims, its tensor {}", numbers.size(), tensor.size.size()), entry_);
    }
    for (const Node& number : numbers) tensor.numbers.push_back(count(number, "a chunk's place"));
  }

  /// The chunk that was added last, `after` being the number of chunks with it.
  void check_chunk(const TensorEntry& tensor, size_t after) const {
    const size_t ndim = tensor.size.size();
    if (ndim == 0) return;
    const int64_t* const offsets = tensor.numbers.data() + 2 * (after - 1) * ndim;
    for (size_t d = 0; d < ndim; ++d) {
      if (offsets[d] > tensor.size[d] || offsets[ndim + d] > tensor.size[d] - offsets[d]) {
        throw std::invalid_argument(ErrorText(options_.operation, "a chunk lies outside of its tensor")
                                        .fact("in", options_.source)
                                        .fact("entry", entry_)
                                        .fact("tensor", sherd::to_string(tensor.size))
                                        .fact("chunk", sherd::to_string(tensor.box(after - 1))));
      }
    }
  }

  /// A tuple in today's files; a dict of its fields in some older ones.
  void read_properties(const Node& node, TensorEntry& tensor) const {
    const Node& state = state_of(node, Class::properties, "a tensor's properties");
    const Node* fields[5] = {};
    if (state.is(Kind::tuple)) {
      const auto items = graph_.items(state);
      for (size_t i = 0; i < 5 && i < items.size(); ++i) fields[i] = &items[i];
    } else {
      constexpr std::string_view kNames[] = {"dtype", "layout", "requires_grad", "memory_format", "pin_memory"};
      for (size_t i = 0; i < 5; ++i) fields[i] = find(state, kNames[i]);
    }
    if (fields[0] == nullptr || !fields[0]->is(Kind::global)) fail("a tensor has no dtype", entry_);
    const GlobalName& dtype = graph_.global(*fields[0]);
    const auto found = dtype.module == "torch" ? dtype_from_torch(dtype.name) : std::nullopt;
    if (!found) fail(fmt::format("{}.{} is no dtype", dtype.module, dtype.name), entry_);
    tensor.dtype = *found;
    if (fields[1] != nullptr && is(*fields[1], Class::layout)) {
      const auto arguments = graph_.items(graph_.arguments(*fields[1]));
      if (arguments.size() != 1) fail("a layout has no name", entry_);
      tensor.layout = copied(text(arguments[0], "a layout"));
    }
    if (fields[2] != nullptr) tensor.requires_grad = flag(*fields[2]);
    if (fields[3] != nullptr && is(*fields[3], Class::memory_format)) {
      const auto arguments = graph_.items(graph_.arguments(*fields[3]));
      if (arguments.size() != 1 || count(arguments[0], "a memory format") > 2)
        fail("a memory format is unknown", entry_);
      tensor.memory_format = static_cast<int>(arguments[0].integer);
    }
    if (fields[4] != nullptr) tensor.pin_memory = flag(*fields[4]);
  }

  // planner_data

  void read_planner_data(const Node& node) {
    if (auto paths = paths_of(node)) {
      metadata_.paths = std::move(paths);
    } else {
      metadata_.other_planner_data = values_.of(node);
    }
  }

  std::optional<std::vector<std::pair<std::string, std::vector<PathPart>>>> paths_of(const Node& node) const {
    if (!node.is(Kind::dict)) return std::nullopt;
    std::vector<std::pair<std::string, std::vector<PathPart>>> paths;
    std::unordered_set<std::string_view> names;
    const auto items = graph_.items(node);
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::text) || !(items[i + 1].is(Kind::tuple) || items[i + 1].is(Kind::list)))
        return std::nullopt;
      auto path = state_path(items[i + 1]);
      if (!path) return std::nullopt;
      if (!names.insert(items[i].text()).second) fail("a name has two paths", items[i].text());
      budget_.spend(sizeof(*path));
      paths.emplace_back(copied(items[i].text()), std::move(*path));
    }
    return paths;
  }

  std::optional<std::vector<PathPart>> state_path(const Node& node) const {
    std::vector<PathPart> path;
    const auto parts = graph_.items(node);
    if (parts.size() > kMostPathParts) {
      fail(fmt::format("a path in the state has {} parts, more than {}", parts.size(), kMostPathParts));
    }
    // The beginnings of a path are looked up one by one.
    budget_.spend(parts.size() * (sizeof(PathPart) + parts.size()));
    for (const Node& part : parts) {
      if (part.is(Kind::text)) {
        path.emplace_back(copied(part.text()));
      } else if (part.is(Kind::integer)) {
        path.emplace_back(part.integer);
      } else {
        return std::nullopt;
      }
    }
    return path;
  }

  void read_manifest_name(const Node& node) {
    const std::string_view name = text(node, "sherd_manifest");
    if (!is_inside(name)) fail(fmt::format("a file lies outside of the checkpoint: \"{}\"", name));
    metadata_.manifest = name;
  }

  void read_dicts(const Node& node) {
    if (!node.is(Kind::list)) fail("sherd_dicts is no list", "");
    for (const Node& item : graph_.items(node)) {
      auto path = item.is(Kind::tuple) ? state_path(item) : std::nullopt;
      if (!path) fail("sherd_dicts has something that is no path", "");
      budget_.spend(sizeof(*path));
      metadata_.dicts.push_back(std::move(*path));
    }
  }

  // A list of (path, what lies beside).
  void read_ordered(const Node& node) {
    if (!node.is(Kind::list)) fail("sherd_ordered is no list", "");
    for (const Node& item : graph_.items(node)) {
      const auto parts = item.is(Kind::tuple) ? graph_.items(item) : std::span<const Node>();
      auto path = parts.size() == 2 && parts[0].is(Kind::tuple) ? state_path(parts[0]) : std::nullopt;
      if (!path) fail("sherd_ordered has something that is no path", "");
      budget_.spend(sizeof(OrderedPlace));
      metadata_.ordered.push_back({std::move(*path), values_.of(parts[1])});
    }
  }

  // A list of lists of (name, offset, strides).
  void read_shared(const Node& node) {
    if (!node.is(Kind::list)) fail("sherd_shared is no list", "");
    for (const Node& group : graph_.items(node)) {
      if (!group.is(Kind::list)) fail("sherd_shared has something that is no list", "");
      budget_.spend(sizeof(std::vector<SharedView>));
      auto& views = metadata_.shared.emplace_back();
      for (const Node& item : graph_.items(group)) {
        const auto parts = item.is(Kind::tuple) ? graph_.items(item) : std::span<const Node>();
        if (parts.size() != 3 || !parts[2].is(Kind::tuple)) fail("sherd_shared has something that is no view", "");
        budget_.spend(sizeof(SharedView));
        SharedView& view = views.emplace_back();
        view.name = copied(text(parts[0], "a name"));
        view.offset = count(parts[1], "an offset");
        const auto strides = graph_.items(parts[2]);
        check_ndim(strides.size());
        add_counts(strides, "a stride", view.strides);
      }
    }
  }

  // storage_data

  void read_storage(const Node& node) {
    const auto items = pairs(node, "storage_data");
    for (size_t i = 0; i < items.size(); i += 2) {
      const Node& index = state_of(items[i], Class::index, "a key of storage_data");
      const std::string_view name = text(*need(index, "fqn"), "a name");
      entry_ = name;
      const auto found = numbers_.find(name);
      if (found == numbers_.end()) fail("a stored item belongs to no entry", name);
      Place& place = place_for(found->second, index);
      if (place.file >= 0) fail("an item is stored twice", name);
      place = read_place(state_of(items[i + 1], Class::storage_info, "a value of storage_data"));
    }
    entry_ = {};
  }

  Place& place_for(size_t number, const Node& index) {
    auto& content = metadata_.entries[number].content;
    if (auto* bytes = std::get_if<BytesEntry>(&content)) return bytes->place;
    auto& tensor = std::get<TensorEntry>(content);
    const Node* const offset = find(index, "offset");
    if (offset == nullptr) {
      if (tensor.chunk_count() != 1) fail("a stored item does not say which chunk it is", entry_);
      return tensor.places[0];
    }
    offsets_.clear();
    const auto offsets = sequence(*offset, "an offset");
    if (offsets.size() != tensor.size.size()) fail("a stored item has not as many dims as its tensor", entry_);
    add_counts(offsets, "an offset", offsets_);
    const auto matches = [&](size_t chunk) { return std::ranges::equal(tensor.offsets(chunk), offsets_); };
    // The hint is right in files of today. Without a right one, the chunks in order of their offsets are looked
    // through.
    const Node* const hint = find(index, "index");
    if (hint != nullptr && hint->is(Kind::integer) && hint->integer >= 0 &&
        static_cast<uint64_t>(hint->integer) < tensor.chunk_count() && matches(static_cast<size_t>(hint->integer))) {
      return tensor.places[static_cast<size_t>(hint->integer)];
    }
    const size_t chunk = look_up(number, tensor);
    if (chunk == tensor.chunk_count()) {
      throw std::invalid_argument(ErrorText(options_.operation, "a stored item is no chunk of its tensor")
                                      .fact("in", options_.source)
                                      .fact("entry", entry_)
                                      .fact("offset", sherd::to_string(offsets_)));
    }
    return tensor.places[chunk];
  }

  size_t look_up(size_t number, const TensorEntry& tensor) {
    auto& order = orders_[number];
    const auto before = [&](std::span<const int64_t> a, std::span<const int64_t> b) {
      return std::ranges::lexicographical_compare(a, b);
    };
    if (order.size() != tensor.chunk_count()) {
      order.resize(tensor.chunk_count());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return before(tensor.offsets(a), tensor.offsets(b)); });
    }
    const auto found =
        std::lower_bound(order.begin(), order.end(), std::span<const int64_t>(offsets_),
                         [&](size_t a, std::span<const int64_t> b) { return before(tensor.offsets(a), b); });
    if (found == order.end() || !std::ranges::equal(tensor.offsets(*found), offsets_)) return tensor.chunk_count();
    return *found;
  }

  Place read_place(const Node& state) {
    Place place;
    place.file = file_number(text(*need(state, "relative_path"), "a file's name"));
    place.offset = count(*need(state, "offset"), "an offset in a file");
    place.length = count(*need(state, "length"), "a length in a file");
    int64_t end = 0;
    if (__builtin_add_overflow(place.offset, place.length, &end))
      fail("an item lies beyond the end of any file", entry_);
    if (const Node* transforms = find(state, "transform_descriptors")) place.transforms = transform_number(*transforms);
    return place;
  }

  int32_t file_number(std::string_view name) {
    if (name.data() == last_file_.data() && name.size() == last_file_.size() && last_number_ >= 0) return last_number_;
    const auto [found, fresh] = files_.emplace(name, static_cast<int32_t>(metadata_.files.size()));
    if (fresh) {
      if (!is_inside(name)) fail(fmt::format("a file lies outside of the checkpoint: \"{}\"", name), entry_);
      metadata_.files.emplace_back(name);
    }
    last_file_ = name;
    return last_number_ = found->second;
  }

  int32_t transform_number(const Node& node) {
    std::vector<std::string> descriptors;
    for (const Node& descriptor : sequence(node, "transform_descriptors")) {
      budget_.spend(sizeof(std::string));
      descriptors.push_back(copied(text(descriptor, "a transform")));
    }
    if (descriptors.empty()) return -1;
    auto& known = metadata_.transforms;
    const auto found = std::find(known.begin(), known.end(), descriptors);
    const auto number = static_cast<int32_t>(found - known.begin());
    if (found == known.end()) {
      if (known.size() >= 1000) fail("more than 1000 different lists of transforms", entry_);
      known.push_back(std::move(descriptors));
    }
    return number;
  }

  // storage_meta

  void read_storage_meta(const Node& node) {
    const Node& state = state_of(node, Class::storage_meta, "storage_meta");
    if (const Node* id = find(state, "checkpoint_id")) {
      metadata_.checkpoint_id = is(*id, Class::path) ? path_of(*id) : std::string(text(*id, "checkpoint_id"));
    }
    if (const Node* id = find(state, "save_id")) metadata_.save_id = text(*id, "save_id");
  }

  /// pathlib writes the parts of a path; the first one of an absolute path is "/".
  std::string path_of(const Node& node) const {
    std::string path;
    for (const Node& part : graph_.items(graph_.arguments(node))) {
      if (!path.empty() && !path.ends_with('/')) path += '/';
      path += copied(text(part, "a part of a path"));
    }
    return path;
  }

  UnpickleOptions options_;
  PickleGraph graph_;
  mutable MemoryBudget budget_;  // for all that is made of the graph, and for looking at what it has but once
  Values values_;
  std::vector<Class> classes_;  // of the graph's globals
  Metadata metadata_;
  std::string_view entry_;  // the one that is being read, for errors
  std::unordered_map<std::string_view, size_t> numbers_;
  std::unordered_map<std::string_view, int32_t> files_;
  std::string_view last_file_;
  int32_t last_number_ = -1;
  Dims offsets_;
  std::unordered_map<size_t, std::vector<size_t>> orders_;  // of the chunks of an entry
};

}  // namespace

Metadata decode_metadata(std::span<const std::byte> bytes, std::string_view source) {
  return Decoder(bytes, source).decode();
}

}  // namespace sherd::format
