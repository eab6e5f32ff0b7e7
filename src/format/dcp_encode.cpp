#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "format/dcp.h"
#include "format/number_keys.h"
#include "format/pickle_opcodes.h"
#include "format/pickle_text.h"
#include "format/pickle_value.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kBatch = 1000;  // items per APPENDS or SETITEMS: they wait on the reader's stack

/// Names that occur in every item. They are put into the memo at the very beginning, so that a fetch has two bytes.
// clang-format off
enum class Symbol : uint8_t {
  chunk_class, index_class, info_class, size_class, tensor_class, properties_class, bytes_class, memory_format_class,
  layout_function, offsets, sizes, fqn, index, offset, relative_path, length, transform_descriptors, properties, size,
  chunks,
};
// clang-format on
struct SymbolText {
  std::string_view module;  // empty for a text
  std::string_view name;
};
constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata";
constexpr std::array<SymbolText, 20> kSymbols = {{
    {kMetadata, "ChunkStorageMetadata"},
    {kMetadata, "MetadataIndex"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {"torch", "Size"},
    {kMetadata, "TensorStorageMetadata"},
    {kMetadata, "TensorProperties"},
    {kMetadata, "BytesStorageMetadata"},
    {kMetadata, "_MEM_FORMAT_ENCODING"},
    {"torch.serialization", "_get_layout"},
    {"", "offsets"},
    {"", "sizes"},
    {"", "fqn"},
    {"", "index"},
    {"", "offset"},
    {"", "relative_path"},
    {"", "length"},
    {"", "transform_descriptors"},
    {"", "properties"},
    {"", "size"},
    {"", "chunks"},
}};
static_assert(kSymbols.size() == static_cast<size_t>(Symbol::chunks) + 1);

/// The opcodes into a buffer that is handed out when it is full. Each call writes at most kSlack bytes, texts apart.
class Out {
 public:
  explicit Out(const std::function<void(std::span<const std::byte>)>& write)
      : write_(write), buffer_(kPiece + kSlack) {}

  /// Called between items, so that the writes within need no checks.
  void make_room() {
    if (used_ >= kPiece) flush();
  }
  void flush() {
    if (used_ > 0) write_(std::as_bytes(std::span(buffer_).first(used_)));
    used_ = 0;
  }

  void op(Op op) { buffer_[used_++] = static_cast<char>(op); }
  template <class T>
  void number(T value) {
    std::memcpy(buffer_.data() + used_, &value, sizeof(T));
    used_ += sizeof(T);
  }
  void symbol(Symbol symbol) {
    op(Op::binget);
    buffer_[used_++] = static_cast<char>(symbol);
  }
  void memoize() {
    op(Op::memoize);
    ++memo_;
  }
  uint32_t next_memo() const { return memo_; }
  void set_next_memo(uint64_t memo) {
    if (memo > std::numeric_limits<uint32_t>::max())
      throw std::invalid_argument("encode_metadata: more than 2^32 values");
    memo_ = static_cast<uint32_t>(memo);
  }
  void get(uint32_t memo) {
    if (memo < 0x100) {
      op(Op::binget);
      buffer_[used_++] = static_cast<char>(memo);
    } else {
      op(Op::long_binget);
      number(memo);
    }
  }
  void integer(int64_t value) {
    if (value >= 0 && value < 0x100) {
      op(Op::binint1);
      buffer_[used_++] = static_cast<char>(value);
    } else if (value >= 0 && value < 0x10000) {
      op(Op::binint2);
      number(static_cast<uint16_t>(value));
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      op(Op::binint);
      number(static_cast<int32_t>(value));
    } else {
      op(Op::long1);
      buffer_[used_++] = 8;
      number(value);
    }
  }
  void text(std::string_view text) {
    if (!is_utf8(text) || text.size() > std::numeric_limits<uint32_t>::max()) {
      throw std::invalid_argument(ErrorText("encode_metadata", "a name is not UTF-8 text"));
    }
    make_room();
    if (text.size() < 0x100) {
      op(Op::short_binunicode);
      number(static_cast<uint8_t>(text.size()));
    } else {
      op(Op::binunicode);
      number(static_cast<uint32_t>(text.size()));
    }
    raw(text);
  }
  void raw(std::string_view bytes) {
    while (!bytes.empty()) {
      make_room();
      const size_t part = std::min(bytes.size(), kPiece + kSlack / 2 - used_);
      std::memcpy(buffer_.data() + used_, bytes.data(), part);
      used_ += part;
      bytes.remove_prefix(part);
    }
    make_room();
  }
  /// A new object of a class, and a mark for the fields that follow up to `built`.
  void object(Symbol type) {
    symbol(type);
    op(Op::empty_tuple);
    op(Op::newobj);
    op(Op::empty_dict);
    op(Op::mark);
  }
  void built() {
    op(Op::setitems);
    op(Op::build);
  }

 private:
  static constexpr size_t kSlack = 8192;

  const std::function<void(std::span<const std::byte>)>& write_;
  std::vector<char> buffer_;
  size_t used_ = 0;
  uint32_t memo_ = 0;
};

class Encoder {
 public:
  Encoder(const Metadata& metadata, const std::function<void(std::span<const std::byte>)>& write)
      : metadata_(metadata), out_(write) {}

  void encode() {
    out_.op(Op::proto);
    out_.number(uint8_t{4});
    write_symbols();
    begin_object("Metadata");
    key("state_dict_metadata");
    write_entries();
    key("planner_data");
    write_planner_data();
    key("storage_data");
    write_storage();
    key("storage_meta");
    write_storage_meta();
    key("version");
    text_or_none(metadata_.version);
    // Ours: attributes more, which torch carries along when it reads them.
    if (!metadata_.manifest.empty()) {
      key("sherd_manifest");
      out_.text(metadata_.manifest);
    }
    const DictPaths dicts = metadata_.paths ? with_numbers_below(*metadata_.paths, metadata_.dicts) : metadata_.dicts;
    if (!dicts.empty()) {
      key("sherd_dicts");
      write_dicts(dicts);
    }
    if (!metadata_.ordered.empty()) {
      key("sherd_ordered");
      write_value(ordered_value());
    }
    if (!metadata_.shared.empty()) {
      key("sherd_shared");
      write_value(shared_value());
    }
    out_.built();
    out_.op(Op::stop);
    out_.flush();
  }

 private:
  [[noreturn]] static void fail(std::string_view problem, std::string_view entry) {
    throw std::invalid_argument(ErrorText("encode_metadata", problem).fact("entry", entry));
  }

  void write_symbols() {
    for (const SymbolText& symbol : kSymbols) {
      if (!symbol.module.empty()) out_.text(symbol.module);
      out_.text(symbol.name);
      if (!symbol.module.empty()) out_.op(Op::stack_global);
      out_.memoize();
      out_.op(Op::pop);
    }
  }

  void begin_object(std::string_view name) {
    out_.text(kMetadata);
    out_.text(name);
    out_.op(Op::stack_global);
    out_.op(Op::empty_tuple);
    out_.op(Op::newobj);
    out_.op(Op::empty_dict);
    out_.op(Op::mark);
  }
  void key(std::string_view name) { out_.text(name); }
  void text_or_none(std::string_view text) {
    if (text.empty()) {
      out_.op(Op::none);
    } else {
      out_.text(text);
    }
  }

  /// Opens and closes the batches in which a container gets its items.
  class Batches {
   public:
    Batches(Out& out, Op close) : out_(out), close_(close) {}
    void item() {
      out_.make_room();
      if (count_ == kBatch) end();
      if (count_++ == 0) out_.op(Op::mark);
    }
    void end() {
      if (count_ > 0) out_.op(close_);
      count_ = 0;
    }

   private:
    Out& out_;
    Op close_;
    size_t count_ = 0;
  };

  // Sizes are shared: a torch.Size is costly to make in Python, and never changes.

  uint32_t write_size(std::span<const int64_t> dims) {
    out_.symbol(Symbol::size_class);
    if (dims.size() > 3) out_.op(Op::mark);
    for (const int64_t dim : dims) out_.integer(dim);
    if (dims.empty()) {
      out_.op(Op::empty_tuple);
    } else {
      out_.op(dims.size() > 3 ? Op::tuple : static_cast<Op>(static_cast<size_t>(Op::tuple1) + dims.size() - 1));
    }
    out_.op(Op::tuple1);
    out_.op(Op::reduce);
    const uint32_t memo = out_.next_memo();
    out_.memoize();
    return memo;
  }

  struct SharedSize {
    std::span<const int64_t> dims;
    uint32_t memo = 0;
    bool known = false;
  };
  uint32_t write_size(std::span<const int64_t> dims, std::span<SharedSize> shared) {
    for (const SharedSize& candidate : shared) {
      if (candidate.known && std::ranges::equal(candidate.dims, dims)) {
        out_.get(candidate.memo);
        return candidate.memo;
      }
    }
    const uint32_t memo = write_size(dims);
    shared.back() = {dims, memo, true};  // the last one is what came last
    return memo;
  }

  // state_dict_metadata

  void write_entries() {
    out_.op(Op::empty_dict);
    names_.reserve(metadata_.entries.size());
    lists_of_.reserve(metadata_.entries.size());
    Batches batches(out_, Op::setitems);
    for (const MetadataEntry& entry : metadata_.entries) {
      batches.item();
      out_.text(entry.name);
      names_.push_back(out_.next_memo());
      out_.memoize();
      if (const auto* tensor = std::get_if<TensorEntry>(&entry.content)) {
        write_tensor(*tensor, entry.name);
      } else {
        lists_of_.push_back(0);
        out_.symbol(Symbol::bytes_class);
        out_.op(Op::empty_tuple);
        out_.op(Op::newobj);
      }
    }
    batches.end();
  }

  void write_tensor(const TensorEntry& tensor, std::string_view name) {
    const size_t ndim = tensor.size.size();
    if (tensor.numbers.size() != 2 * ndim * tensor.chunk_count())
      fail("a tensor's chunks have not as many dims as it", name);
    if (ndim > 64) fail("a tensor has more than 64 dims", name);
    out_.object(Symbol::tensor_class);
    out_.symbol(Symbol::properties);
    write_properties(tensor);
    out_.symbol(Symbol::size);
    SharedSize whole{tensor.size, write_size(tensor.size), true};
    out_.symbol(Symbol::chunks);
    lists_of_.push_back(write_chunks(tensor, whole));
    out_.built();
  }

  void write_properties(const TensorEntry& tensor) {
    const std::string name =
        std::string{static_cast<char>(tensor.dtype), static_cast<char>(tensor.requires_grad),
                    static_cast<char>(tensor.memory_format), static_cast<char>(tensor.pin_memory)} +
        tensor.layout;
    const auto [found, fresh] = properties_.try_emplace(name, 0);
    if (!fresh) return out_.get(found->second);
    out_.symbol(Symbol::properties_class);
    out_.op(Op::empty_tuple);
    out_.op(Op::newobj);
    found->second = out_.next_memo();
    out_.memoize();
    out_.op(Op::mark);
    out_.text("torch");
    out_.text(names_of(tensor.dtype).torch);
    out_.op(Op::stack_global);
    out_.symbol(Symbol::layout_function);
    out_.text(tensor.layout);
    out_.op(Op::tuple1);
    out_.op(Op::reduce);
    out_.op(tensor.requires_grad ? Op::newtrue : Op::newfalse);
    out_.symbol(Symbol::memory_format_class);
    out_.integer(tensor.memory_format);
    out_.op(Op::tuple1);
    out_.op(Op::reduce);
    out_.op(tensor.pin_memory ? Op::newtrue : Op::newfalse);
    out_.op(Op::tuple);
    out_.op(Op::build);
  }

  /// Tensors that are cut alike share one list. Returns its number in lists_.
  size_t write_chunks(const TensorEntry& tensor, const SharedSize& whole) {
    const size_t number = lists_.size();
    for (auto [found, end] = known_lists_.equal_range(hash_of(tensor)); found != end; ++found) {
      const ChunkList& list = lists_[found->second];
      if (list.tensor->numbers == tensor.numbers && list.tensor->chunk_count() == tensor.chunk_count() &&
          list.tensor->size.size() == tensor.size.size()) {
        out_.get(list.memo);
        return found->second;
      }
    }
    known_lists_.emplace(hash_of(tensor), number);
    ChunkList& list = lists_.emplace_back(ChunkList{&tensor, out_.next_memo(), {}});
    out_.op(Op::empty_list);
    out_.memoize();
    list.offsets.reserve(tensor.chunk_count());
    SharedSize sizes_known[] = {whole, {}};
    SharedSize origin[] = {origins_[tensor.size.size()], {}};
    Batches batches(out_, Op::appends);
    for (size_t i = 0; i < tensor.chunk_count(); ++i) {
      batches.item();
      out_.object(Symbol::chunk_class);
      out_.symbol(Symbol::offsets);
      list.offsets.push_back(write_size(tensor.offsets(i), origin));
      out_.symbol(Symbol::sizes);
      write_size(tensor.sizes(i), sizes_known);
      out_.built();
      if (!origin[0].known && std::ranges::all_of(tensor.offsets(i), [](int64_t at) { return at == 0; })) {
        origin[0] = origins_[tensor.size.size()] = {tensor.offsets(i), list.offsets[i], true};
      }
    }
    batches.end();
    return number;
  }

  static uint64_t hash_of(const TensorEntry& tensor) {
    uint64_t hash = tensor.chunk_count() * 64 + tensor.size.size();
    for (const int64_t number : tensor.numbers) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }

  // planner_data

  void write_planner_data() {
    if (!metadata_.paths) {
      return write_value(metadata_.other_planner_data);
    }
    const bool changes = !metadata_.dicts.empty();
    const StatePlaces changed = changes ? with_text_keys(*metadata_.paths, metadata_.dicts) : StatePlaces();
    const StatePlaces& places = changes ? changed : *metadata_.paths;
    out_.op(Op::empty_dict);
    Batches batches(out_, Op::setitems);
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& [name, path] = places[i];
      batches.item();
      // Usually in the entries' order.
      if (i < metadata_.entries.size() && metadata_.entries[i].name == name) {
        out_.get(names_[i]);
      } else {
        out_.text(name);
      }
      write_path(path);
    }
    batches.end();
  }

  void write_path(const std::vector<PathPart>& path) {
    if (path.size() > kMostPathParts) {
      throw std::invalid_argument(ErrorText("encode_metadata", "a path in the state has too many parts")
                                      .fact("parts", std::to_string(path.size()))
                                      .fact("most", std::to_string(kMostPathParts)));
    }
    if (path.size() > 3) out_.op(Op::mark);
    for (const PathPart& part : path) {
      if (const auto* word = std::get_if<std::string>(&part)) {
        write_word(*word);
      } else {
        out_.make_room();
        out_.integer(std::get<int64_t>(part));
      }
    }
    if (path.empty()) {
      out_.op(Op::empty_tuple);
    } else {
      out_.op(path.size() > 3 ? Op::tuple : static_cast<Op>(static_cast<size_t>(Op::tuple1) + path.size() - 1));
    }
  }

  void write_value(const Value& value) {
    std::string bytes;
    PickledPart part{.protocol = 4, .memo = out_.next_memo()};
    append_pickled(bytes, value, part);
    out_.raw(bytes);
    out_.set_next_memo(part.memo);
  }

  Value ordered_value() const {
    List list;
    for (const OrderedPlace& place : metadata_.ordered) {
      Tuple path;
      for (const PathPart& part : place.path) {
        path.items.push_back(std::visit([](const auto& word) { return Value(word); }, part));
      }
      list.emplace_back(Tuple{{std::move(path), place.beside}});
    }
    return list;
  }
  Value shared_value() const {
    List list;
    for (const auto& views : metadata_.shared) {
      List group;
      for (const SharedView& view : views) {
        Tuple strides;
        for (const int64_t stride : view.strides) strides.items.emplace_back(stride);
        group.emplace_back(Tuple{{view.name, view.offset, std::move(strides)}});
      }
      list.emplace_back(std::move(group));
    }
    return list;
  }

  void write_dicts(const DictPaths& dicts) {
    out_.op(Op::empty_list);
    Batches batches(out_, Op::appends);
    for (const auto& path : dicts) {
      batches.item();
      write_path(path);
    }
    batches.end();
  }

  void write_word(const std::string& word) {
    out_.make_room();
    const auto [found, fresh] = words_.try_emplace(word, out_.next_memo());
    if (!fresh) return out_.get(found->second);
    out_.text(word);
    out_.memoize();
  }

  // storage_data

  void write_storage() {
    out_.op(Op::empty_dict);
    files_.assign(metadata_.files.size(), 0);
    transforms_.assign(metadata_.transforms.size(), 0);
    Batches batches(out_, Op::setitems);
    for (size_t i = 0; i < metadata_.entries.size(); ++i) {
      const MetadataEntry& entry = metadata_.entries[i];
      if (const auto* tensor = std::get_if<TensorEntry>(&entry.content)) {
        const ChunkList& list = lists_[lists_of_[i]];
        for (size_t chunk = 0; chunk < tensor->chunk_count(); ++chunk) {
          if (tensor->places[chunk].file < 0) continue;
          batches.item();
          out_.object(Symbol::index_class);
          out_.symbol(Symbol::fqn);
          out_.get(names_[i]);
          out_.symbol(Symbol::index);
          out_.integer(static_cast<int64_t>(chunk));
          out_.symbol(Symbol::offset);
          out_.get(list.offsets[chunk]);
          out_.built();
          write_place(tensor->places[chunk], entry.name);
        }
      } else if (const Place& place = std::get<BytesEntry>(entry.content).place; place.file >= 0) {
        batches.item();
        out_.object(Symbol::index_class);
        out_.symbol(Symbol::fqn);
        out_.get(names_[i]);
        out_.symbol(Symbol::index);
        out_.op(Op::none);
        out_.built();
        write_place(place, entry.name);
      }
    }
    batches.end();
  }

  void write_place(const Place& place, std::string_view entry) {
    if (static_cast<size_t>(place.file) >= files_.size()) fail("a chunk's file is not among the files", entry);
    out_.object(Symbol::info_class);
    out_.symbol(Symbol::relative_path);
    uint32_t& file = files_[static_cast<size_t>(place.file)];
    if (file == 0) {
      out_.text(metadata_.files[static_cast<size_t>(place.file)]);
      file = out_.next_memo();
      out_.memoize();
    } else {
      out_.get(file);
    }
    out_.symbol(Symbol::offset);
    out_.integer(place.offset);
    out_.symbol(Symbol::length);
    out_.integer(place.length);
    if (place.transforms >= 0) {
      if (static_cast<size_t>(place.transforms) >= transforms_.size())
        fail("a chunk's transforms are not there", entry);
      out_.symbol(Symbol::transform_descriptors);
      write_transforms(static_cast<size_t>(place.transforms));
    }
    out_.built();
  }

  void write_transforms(size_t number) {
    if (transforms_[number] != 0) return out_.get(transforms_[number]);
    out_.op(Op::empty_list);
    transforms_[number] = out_.next_memo();
    out_.memoize();
    for (const std::string& descriptor : metadata_.transforms[number]) {
      out_.text(descriptor);
      out_.op(Op::append);
    }
  }

  // storage_meta

  void write_storage_meta() {
    begin_object("StorageMeta");
    key("checkpoint_id");
    text_or_none(metadata_.checkpoint_id);
    key("save_id");
    text_or_none(metadata_.save_id);
    key("load_id");
    out_.op(Op::none);
    key("modules");
    out_.op(Op::empty_list);
    out_.built();
  }

  struct ChunkList {
    const TensorEntry* tensor;
    uint32_t memo;
    std::vector<uint32_t> offsets;  // where each chunk's lie in the memo
  };

  const Metadata& metadata_;
  Out out_;
  std::vector<uint32_t> names_;   // where the entries' names lie in the memo
  std::vector<size_t> lists_of_;  // per entry, in lists_
  std::vector<ChunkList> lists_;
  std::unordered_multimap<uint64_t, size_t> known_lists_;
  std::unordered_map<std::string, uint32_t> properties_;
  std::array<SharedSize, 65> origins_;  // all zeros, by ndim
  std::unordered_map<std::string, uint32_t> words_;
  std::vector<uint32_t> files_;  // 0: not written yet, for the memo begins with a symbol
  std::vector<uint32_t> transforms_;
};

}  // namespace

void encode_metadata(const Metadata& metadata, const std::function<void(std::span<const std::byte>)>& write) {
  Encoder(metadata, write).encode();
}

}  // namespace sherd::format
