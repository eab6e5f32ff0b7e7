#include "format/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "format/pickle_bytes.h"
#include "format/pickle_text.h"
#include "format/pickle_value.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

constexpr int kMostDepth = 1000;  // as unpickle reads by default
constexpr size_t kBatch = 1000;   // items per APPENDS or SETITEMS, as Python writes them

/// Writes in the order and with the memo of Python's pickler. Texts are shared by content, where Python shares them by
/// identity; for the names in a state that is the same.
class Pickler {
 public:
  Pickler(std::string& out, const PickledPart& part, const std::function<void(const TensorRef&)>& on_tensor)
      : bytes_(out), on_tensor_(on_tensor), old_names_(part.protocol <= 2), next_(part.memo) {}

  void save(const Value& value) {
    if (++depth_ > kMostDepth) fail(fmt::format("values lie deeper in one another than {}", kMostDepth));
    std::visit([this](const auto& content) { save(content); }, value.content());
    --depth_;
  }
  uint64_t next() const { return next_; }

 private:
  [[noreturn]] static void fail(std::string_view problem) { throw std::invalid_argument(ErrorText("pickle", problem)); }

  void save(const None&) { bytes_.op(Op::none); }
  void save(bool value) { bytes_.op(value ? Op::newtrue : Op::newfalse); }
  void save(int64_t value) { bytes_.integer(value); }
  void save(const BigInt& value) {
    if (value.bytes.size() < 0x100) {
      bytes_.op(Op::long1);
      bytes_.byte(static_cast<uint8_t>(value.bytes.size()));
    } else {
      if (value.bytes.size() > std::numeric_limits<int32_t>::max()) fail("an int of 2 GiB");
      bytes_.op(Op::long4);
      bytes_.number(static_cast<int32_t>(value.bytes.size()));
    }
    bytes_.raw(value.bytes);
  }
  void save(double value) {
    bytes_.op(Op::binfloat);
    bytes_.number(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
  }
  void save(const std::complex<double>& value) {
    global("builtins", "complex");
    save(value.real());
    save(value.imag());
    bytes_.op(Op::tuple2);
    put();
    call();
  }
  void save(const std::string& value) { text(value); }
  void save(const Bytes& value) {
    if (value.array) global("builtins", "bytearray");
    if (value.data.empty()) {
      if (!value.array) global("builtins", "bytes");
      bytes_.op(Op::empty_tuple);
      return call();
    }
    global("_codecs", "encode");
    std::string latin1;
    for (const char c : value.data) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x80) latin1.push_back(static_cast<char>(0xC0 | byte >> 6));
      latin1.push_back(static_cast<char>(byte >= 0x80 ? 0x80 | (byte & 0x3F) : byte));
    }
    text(latin1);
    text("latin1");
    bytes_.op(Op::tuple2);
    put();
    call();
    if (value.array) {
      bytes_.op(Op::tuple1);
      put();
      call();
    }
  }

  /// What is one object here is one in Python.
  template <class T>
  void save(const std::shared_ptr<T>& pointer) {
    const auto found = seen_.find(pointer.get());
    if (found != seen_.end()) return bytes_.get(found->second);
    save_new(*pointer, pointer.get());
  }
  void put() {
    if (next_ > std::numeric_limits<uint32_t>::max()) fail("more than 2^32 values");
    bytes_.put(next_++);
  }
  void put(const void* identity) {
    seen_.emplace(identity, next_);
    put();
  }

  void save_new(const List& list, const void* identity) {
    bytes_.op(Op::empty_list);
    put(identity);
    append(list);
  }
  void save_new(const Tuple& tuple, const void* identity) {
    if (tuple.size) global("torch", "Size");
    items(tuple.items, tuple.size ? nullptr : identity);
    if (tuple.size) {
      bytes_.op(Op::tuple1);
      put();
      bytes_.op(Op::reduce);
      put(identity);
    }
  }
  void save_new(const Set& set, const void* identity) {
    global("builtins", set.frozen ? "frozenset" : "set");
    bytes_.op(Op::empty_list);
    put();
    append(set.items);
    bytes_.op(Op::tuple1);
    put();
    bytes_.op(Op::reduce);
    put(identity);
  }
  void save_new(const Dict& dict, const void* identity) {
    if (dict.ordered) {
      global("collections", "OrderedDict");
      bytes_.op(Op::empty_tuple);
      bytes_.op(Op::reduce);
    } else {
      bytes_.op(Op::empty_dict);
    }
    put(identity);
    set_items(dict);
    if (dict.state != nullptr) build(*dict.state);
  }
  void save_new(const Global& value, const void*) { global(value.module, value.name); }
  void save_new(const Object& object, const void* identity) {
    if (object.type == Global{"", "persistent_id"}) {
      if (object.arguments.size() != 1) fail("a persistent id is one value");
      save(object.arguments[0]);
      return bytes_.op(Op::binpersid);
    }
    global(object.type.module, object.type.name);
    items(object.arguments, nullptr);
    if (!object.keywords.items.empty()) {
      bytes_.op(Op::empty_dict);
      put();
      set_items(object.keywords);
      bytes_.op(Op::newobj_ex);
    } else {
      bytes_.op(object.called ? Op::reduce : Op::newobj);
    }
    put(identity);
    append(object.appended);
    set_items(object.items);
    if (object.state != nullptr) build(*object.state);
  }

  void save_new(const TensorRef& tensor, const void* identity) {
    if (tensor.parameter) global("torch._utils", "_rebuild_parameter");
    if (tensor.meta) {
      meta(tensor);
    } else {
      stored(tensor);
    }
    if (tensor.parameter) {
      put();
      bytes_.op(tensor.requires_grad ? Op::newtrue : Op::newfalse);
      no_hooks();
      bytes_.op(Op::tuple3);
      put();
      bytes_.op(Op::reduce);
    }
    put(identity);
  }
  void stored(const TensorRef& tensor) {
    if (on_tensor_) on_tensor_(tensor);
    const DTypeNames& names = names_of(tensor.dtype);
    const bool typed = !names.storage.empty();
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    bytes_.op(Op::mark);
    bytes_.op(Op::mark);
    text("storage", id_texts_);
    global(typed ? "torch" : "torch.storage", typed ? names.storage : "UntypedStorage");
    text(tensor.storage, id_texts_);
    text(tensor.device, id_texts_);
    bytes_.integer(tensor.storage_bytes / (typed ? names.size : 1));
    bytes_.op(Op::tuple);
    put();
    bytes_.op(Op::binpersid);
    bytes_.integer(tensor.offset);
    dims(tensor.sizes);
    dims(tensor.strides);
    bytes_.op(tensor.requires_grad && !tensor.parameter ? Op::newtrue : Op::newfalse);
    no_hooks();
    if (!typed) global("torch", names.torch);
    bytes_.op(Op::tuple);
    put();
    bytes_.op(Op::reduce);
  }
  void meta(const TensorRef& tensor) {
    global("torch._utils", "_rebuild_meta_tensor_no_storage");
    bytes_.op(Op::mark);
    global("torch", names_of(tensor.dtype).torch);
    dims(tensor.sizes);
    dims(tensor.strides);
    bytes_.op(tensor.requires_grad && !tensor.parameter ? Op::newtrue : Op::newfalse);
    bytes_.op(Op::tuple);
    put();
    bytes_.op(Op::reduce);
  }
  void no_hooks() {
    global("collections", "OrderedDict");
    bytes_.op(Op::empty_tuple);
    call();
  }
  void dims(const Dims& dims) {
    sequence(dims.size(), [&](size_t i) { bytes_.integer(dims[i]); });
    if (!dims.empty()) put();
  }

  void call() {
    bytes_.op(Op::reduce);
    put();
  }
  void build(const Value& state) {
    save(state);
    bytes_.op(Op::build);
  }

  template <class Write>
  void sequence(size_t count, const Write& write) {
    if (count == 0) return bytes_.op(Op::empty_tuple);
    if (count > 3) bytes_.op(Op::mark);
    for (size_t i = 0; i < count; ++i) write(i);
    bytes_.op(count > 3 ? Op::tuple : static_cast<Op>(static_cast<size_t>(Op::tuple1) + count - 1));
  }
  void items(const std::vector<Value>& values, const void* identity) {
    sequence(values.size(), [&](size_t i) { save(values[i]); });
    if (values.empty()) return;
    if (identity != nullptr) {
      put(identity);
    } else {
      put();
    }
  }

  template <class Write>
  void batches(size_t count, Op one, Op many, const Write& write) {
    for (size_t from = 0; from < count; from += kBatch) {
      const size_t until = std::min(count, from + kBatch);
      const bool single = until - from == 1;
      if (!single) bytes_.op(Op::mark);
      for (size_t i = from; i < until; ++i) write(i);
      bytes_.op(single ? one : many);
    }
  }
  void append(const List& list) {
    batches(list.size(), Op::append, Op::appends, [&](size_t i) { save(list[i]); });
  }
  void set_items(const Dict& dict) {
    batches(dict.items.size(), Op::setitem, Op::setitems, [&](size_t i) {
      save(dict.items[i].first);
      save(dict.items[i].second);
    });
  }

  using Texts = std::unordered_map<std::string, uint64_t>;
  void text(std::string_view value) { text(value, texts_); }
  void text(std::string_view value, Texts& known) {
    if (value.size() > std::numeric_limits<uint32_t>::max()) fail("a text of 4 GiB and more");
    if (!is_utf8(value)) fail("a text is not UTF-8: " + to_string(Value(std::string(value)), 60));
    const auto [place, fresh] = known.try_emplace(std::string(value), next_);
    if (!fresh) return bytes_.get(place->second);
    bytes_.text(value);
    put();
  }

  void global(std::string_view module, std::string_view name) {
    if (module.find('\n') != std::string_view::npos || name.find('\n') != std::string_view::npos)
      fail("a name with a line break");
    if (old_names_ && module == "builtins") module = "__builtin__";
    if (old_names_ && module == "copyreg") module = "copy_reg";
    const auto [place, fresh] = globals_.try_emplace({std::string(module), std::string(name)}, next_);
    if (!fresh) return bytes_.get(place->second);
    bytes_.global(module, name);
    put();
  }

  PickleBytes<std::string> bytes_;
  const std::function<void(const TensorRef&)>& on_tensor_;
  bool old_names_;
  uint64_t next_;  // in the memo
  int depth_ = 0;
  std::unordered_map<const void*, uint64_t> seen_;
  Texts texts_;
  Texts id_texts_;  // of storages: other objects than the same texts elsewhere
  std::map<std::pair<std::string, std::string>, uint64_t> globals_;
};

}  // namespace

void append_pickled(std::string& out, const Value& value, PickledPart& part,
                    const std::function<void(const TensorRef&)>& on_tensor) {
  Pickler pickler(out, part, on_tensor);
  pickler.save(value);
  part.memo = pickler.next();
}

std::string pickle(const Value& value, const std::function<void(const TensorRef&)>& on_tensor) {
  std::string out = "\x80\x02";
  PickledPart part;
  append_pickled(out, value, part, on_tensor);
  out.push_back(static_cast<char>(Op::stop));
  return out;
}

}  // namespace sherd::format
