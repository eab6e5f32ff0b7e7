#include "format/pickle_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>

#include "format/pickle_opcodes.h"
#include "format/pickle_text.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

using Kind = Node::Kind;

constexpr size_t kMostDigits = 4300;  // Python's own bound
constexpr size_t kSmallPage = 64;
constexpr size_t kLargePage = size_t{1} << 16;

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"nothing", "None",   "a bool",    "an int",         "an int",  "a float",
                                         "a text",  "bytes",  "a name",    "a list",         "a tuple", "a set",
                                         "a set",   "a dict", "an object", "a persistent id"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const UnpickleOptions& options)
      : options_(options),
        begin_(reinterpret_cast<const char*>(bytes.data())),
        at_(begin_),
        end_(begin_ + bytes.size()),
        values_left_(options.max_values) {
    graph_.containers_.push_back({});  // the empty tuple: one for all
  }

  PickleGraph read() {
    while (step()) {
    }
    check_depth();
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    ErrorText text(options_.operation, problem);
    text.fact("in", options_.source);
    if (opcode_ != nullptr) {
      const std::string_view name = format::name_of(static_cast<Op>(*opcode_));
      const auto code = static_cast<unsigned char>(*opcode_);
      text.fact("opcode", fmt::format("{} at byte {}", name.empty() ? fmt::format("0x{:02x}", code) : std::string(name),
                                      opcode_ - begin_));
    }
    throw std::invalid_argument(text);
  }

  // Bytes

  size_t left() const { return static_cast<size_t>(end_ - at_); }

  std::string_view take(uint64_t count) {
    if (count > left()) fail(fmt::format("the pickle ends too early: {} bytes of {}", left(), count));
    const std::string_view bytes(at_, count);
    at_ += count;
    return bytes;
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;  // pickles are little endian, and so are the machines that this is built for
  }

  std::string_view line() {
    const void* found = std::memchr(at_, '\n', left());
    if (found == nullptr) fail("a line has no end");
    const auto length = static_cast<size_t>(static_cast<const char*>(found) - at_);
    const std::string_view text = take(length);
    ++at_;
    return text;
  }

  // The stack

  void push(const Node& node) {
    if (--values_left_ < 0) fail(fmt::format("more than {} values", options_.max_values));
    stack_.push_back(node);
  }
  void push(Kind kind) { push(Node{.kind = kind, .flag = false, .length = 0, .integer = 0}); }
  void push(bool value) { push(Node{.kind = Kind::boolean, .flag = value, .length = 0, .integer = 0}); }
  void push(int64_t value) { push(Node{.kind = Kind::integer, .flag = false, .length = 0, .integer = value}); }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(size_t count) const {
    if (stack_.size() < floor() + count) fail("the stack is empty");
  }
  Node pop() {
    need(1);
    const Node node = stack_.back();
    stack_.pop_back();
    return node;
  }
  Node& top() {
    need(1);
    return stack_.back();
  }
  /// The nodes above the last mark, which is taken away; drop them when they were used.
  std::span<const Node> above_mark() {
    if (marks_.empty()) fail("there is no mark");
    const size_t from = marks_.back();
    marks_.pop_back();
    return std::span(stack_).subspan(from);
  }
  void drop(std::span<const Node> nodes) { stack_.resize(stack_.size() - nodes.size()); }

  // Containers

  Node* allocate(size_t count) {
    if (count > page_left_) {
      page_size_ = std::min(std::max(kSmallPage, 2 * page_size_), kLargePage);
      const size_t size = std::max(count, page_size_);
      graph_.pages_.push_back(raw_array<Node>(size));
      page_at_ = graph_.pages_.back().get();
      page_left_ = size;
    }
    Node* const found = page_at_;
    page_at_ += count;
    page_left_ -= count;
    return found;
  }

  Node container(Kind kind, std::span<const Node> items, size_t capacity) {
    if (capacity > std::numeric_limits<uint32_t>::max()) fail("a container has too many items");
    Node* const place = capacity > 0 ? allocate(capacity) : nullptr;
    if (!items.empty()) std::copy(items.begin(), items.end(), place);
    graph_.containers_.push_back(
        {.items = place, .count = static_cast<uint32_t>(items.size()), .capacity = static_cast<uint32_t>(capacity)});
    return Node{.kind = kind, .flag = false, .length = 0, .index = graph_.containers_.size() - 1};
  }
  Node container(Kind kind, std::span<const Node> items) { return container(kind, items, items.size()); }

  void extend(const Node& target, std::span<const Node> items) {
    PickleGraph::Container& held = graph_.containers_[target.index];
    const size_t count = held.count + items.size();
    if (count > held.capacity) {
      if (count > std::numeric_limits<uint32_t>::max() / 2) fail("a container has too many items");
      // Exactly what came first, since most containers are filled at once; then twice as much, so that the cost is
      // linear.
      const size_t capacity = held.capacity == 0 ? count : std::max<size_t>(count, 2 * size_t{held.capacity});
      Node* const place = allocate(capacity);
      std::copy_n(held.items, held.count, place);
      held.items = place;
      held.capacity = static_cast<uint32_t>(capacity);
    }
    std::copy(items.begin(), items.end(), held.items + held.count);
    held.count = static_cast<uint32_t>(count);
  }

  void append(const Node& target, std::span<const Node> items) {
    switch (target.kind) {
      case Kind::list:
        return extend(target, items);
      case Kind::object: {
        Node& appended = graph_.extras_[target.index].appended;
        if (appended.is(Kind::unset)) appended = container(Kind::list, {});
        return extend(appended, items);
      }
      default:
        fail(fmt::format("{} cannot be appended to", name_of(target.kind)));
    }
  }

  void set_items(const Node& target, std::span<const Node> items) {
    if (items.size() % 2 != 0) fail("a key has no value");
    switch (target.kind) {
      case Kind::dict:
        return extend(target, items);
      case Kind::object: {
        Node& held = graph_.extras_[target.index].items;
        if (held.is(Kind::unset)) held = container(Kind::dict, {});
        return extend(held, items);
      }
      default:
        fail(fmt::format("{} has no items to set", name_of(target.kind)));
    }
  }

  void add_items(const Node& target, std::span<const Node> items) {
    if (target.is(Kind::object)) return append(target, items);
    if (!target.is(Kind::set)) fail(fmt::format("{} cannot be added to", name_of(target.kind)));
    extend(target, items);
  }

  // Globals and objects

  Node global(std::string_view module, std::string_view name) {
    if (!is_utf8(module) || !is_utf8(name)) fail("a name is not UTF-8");
    // Up to protocol 2, Python writes these under their names of Python 2.
    if (module == "__builtin__") module = "builtins";
    if (module == "copy_reg") module = "copyreg";
    if (options_.allowed && !options_.allowed(Global{std::string(module), std::string(name)})) {
      throw std::invalid_argument(
          ErrorText(options_.operation, fmt::format("{}.{} may not stand here", module, name))
              .fact("in", options_.source)
              .fact("opcode",
                    fmt::format("{} at byte {}", format::name_of(static_cast<Op>(*opcode_)), opcode_ - begin_)));
    }
    graph_.globals_.push_back({module, name});
    return Node{.kind = Kind::global,
                .flag = module == "torch" && name == "Size",
                .length = 0,
                .index = graph_.globals_.size() - 1};
  }

  /// With room for the state that most objects get.
  Node object(const Node& type, const Node& arguments, bool called) {
    if (!type.is(Kind::global)) fail(fmt::format("{} is no class or function", name_of(type.kind)));
    if (!arguments.is(Kind::tuple)) fail(fmt::format("the arguments are {}, not a tuple", name_of(arguments.kind)));
    if (type.flag && called) {
      const auto items = graph_.items(arguments);
      if (items.size() == 1 && items[0].is(Kind::tuple)) {
        Node size = items[0];
        size.flag = true;
        return size;
      }
    }
    const Node items[] = {type, arguments};
    Node made = container(Kind::object, items, 3);
    made.flag = called;
    return made;
  }

  void build(const Node& target, const Node& state) {
    if (!target.is(Kind::object)) fail(fmt::format("{} has no state to build", name_of(target.kind)));
    if (graph_.containers_[target.index].count > 2) fail("an object is built twice");
    extend(target, std::span(&state, 1));
  }

  // The memo

  void put(uint64_t index) {
    // Each entry is made by an opcode, so that a higher index cannot be honest.
    if (index >= static_cast<uint64_t>(end_ - begin_))
      fail(fmt::format("memo {} lies beyond the pickle's length", index));
    const Node node = top();
    if (index == memo_.size()) {
      memo_.push_back(node);
      return;
    }
    if (index > memo_.size()) memo_.resize(index + 1);
    memo_[index] = node;
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || memo_[index].is(Kind::unset)) fail(fmt::format("memo {} holds nothing", index));
    push(memo_[index]);
  }
  uint64_t index_line() {
    const std::string_view digits = line();
    uint64_t index = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error != std::errc() || stopped != digits.data() + digits.size()) fail("a memo index is no number");
    return index;
  }

  // Numbers and texts

  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) {
      // Redundant sign bytes go, so that equal numbers have equal bytes.
      const auto redundant = [&] {
        const size_t n = bytes.size();
        return n > 8 && ((bytes[n - 1] == '\0' && static_cast<int8_t>(bytes[n - 2]) >= 0) ||
                         (bytes[n - 1] == '\xff' && static_cast<int8_t>(bytes[n - 2]) < 0));
      };
      while (redundant()) bytes.remove_suffix(1);
    }
    if (bytes.size() > 8) return push_span(Kind::big, bytes);
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    if (!bytes.empty() && bytes.size() < 8 && static_cast<int8_t>(bytes.back()) < 0)
      value |= ~uint64_t{0} << 8 * bytes.size();
    push(static_cast<int64_t>(value));
  }

  void push_decimal(std::string_view digits) {
    int64_t value = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && stopped == digits.data() + digits.size()) return push(value);
    if (digits.size() > kMostDigits) fail(fmt::format("an int of {} digits, more than {}", digits.size(), kMostDigits));
    const auto bytes = parse_decimal(digits);
    if (!bytes) fail("an int is no number");
    push_long(keep(*bytes));
  }

  void push_float_line() {
    const std::string_view digits = line();
    double value = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (stopped != digits.data() + digits.size() || error == std::errc::invalid_argument) fail("a float is no number");
    push_real(value);
  }
  void push_real(double value) {
    Node node{.kind = Kind::real, .flag = false, .length = 0, .integer = 0};
    node.real = value;
    push(node);
  }

  std::string_view keep(std::string text) { return graph_.texts_.emplace_back(std::move(text)); }

  void push_span(Kind kind, std::string_view bytes, bool flag = false) {
    if (bytes.size() > std::numeric_limits<uint32_t>::max()) fail("a text or bytes of 4 GiB and more");
    Node node{.kind = kind, .flag = flag, .length = static_cast<uint32_t>(bytes.size()), .integer = 0};
    node.data = bytes.data();
    push(node);
  }
  void push_text(std::string_view text) {
    if (!is_utf8(text)) fail("a text is not UTF-8");
    push_span(Kind::text, text);
  }
  /// A str of Python 2: text where it can be.
  void push_old_text(std::string_view text) { push_span(is_utf8(text) ? Kind::text : Kind::bytes, text); }

  std::string_view text_of(const Node& node) const {
    if (!node.is(Kind::text)) fail(fmt::format("a name is {}, not a text", name_of(node.kind)));
    return node.text();
  }

  bool step();
  void check_depth() const;

  const UnpickleOptions& options_;
  const char* begin_;
  const char* at_;
  const char* end_;
  const char* opcode_ = nullptr;
  int64_t values_left_;

  PickleGraph graph_;
  std::vector<Node> stack_;
  std::vector<size_t> marks_;
  std::vector<Node> memo_;
  Node* page_at_ = nullptr;
  size_t page_left_ = 0;
  size_t page_size_ = 0;
};

// One opcode. False at the end of the pickle.
bool PickleMachine::step() {
  opcode_ = nullptr;
  if (at_ == end_) fail("the pickle ends without STOP");
  opcode_ = at_++;
  switch (static_cast<Op>(*opcode_)) {
    case Op::proto:
      if (number<uint8_t>() > 5) fail("a protocol above 5");
      break;
    case Op::frame:
      if (number<uint64_t>() > left()) fail("the pickle ends too early");
      break;
    case Op::stop:
      graph_.root = pop();
      if (!stack_.empty() || !marks_.empty()) fail("more than one value is left");
      if (at_ != end_) fail(fmt::format("{} bytes follow the end of the pickle", left()));
      return false;

    case Op::mark:
      marks_.push_back(stack_.size());
      break;
    case Op::pop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      break;
    case Op::pop_mark:
      drop(above_mark());
      break;
    case Op::dup: {
      const Node node = top();
      push(node);
      break;
    }

    case Op::memoize:
      put(memo_.size());
      break;
    case Op::put:
      put(index_line());
      break;
    case Op::binput:
      put(number<uint8_t>());
      break;
    case Op::long_binput:
      put(number<uint32_t>());
      break;
    case Op::get:
      get(index_line());
      break;
    case Op::binget:
      get(number<uint8_t>());
      break;
    case Op::long_binget:
      get(number<uint32_t>());
      break;

    case Op::none:
      push(Kind::none);
      break;
    case Op::newtrue:
      push(true);
      break;
    case Op::newfalse:
      push(false);
      break;
    case Op::int_line: {
      const std::string_view digits = line();
      if (digits == "00" || digits == "01") {
        push(digits == "01");
      } else {
        push_decimal(digits);
      }
      break;
    }
    case Op::long_line: {
      std::string_view digits = line();
      if (digits.ends_with('L')) digits.remove_suffix(1);
      push_decimal(digits);
      break;
    }
    case Op::binint:
      push(int64_t{number<int32_t>()});
      break;
    case Op::binint1:
      push(int64_t{number<uint8_t>()});
      break;
    case Op::binint2:
      push(int64_t{number<uint16_t>()});
      break;
    case Op::long1:
      push_long(take(number<uint8_t>()));
      break;
    case Op::long4: {
      const auto length = number<int32_t>();
      if (length < 0) fail("a negative length");
      push_long(take(static_cast<uint64_t>(length)));
      break;
    }
    case Op::float_line:
      push_float_line();
      break;
    case Op::binfloat: {
      uint64_t bits = number<uint64_t>();  // the one big endian number
      bits = __builtin_bswap64(bits);
      push_real(std::bit_cast<double>(bits));
      break;
    }

    case Op::string_line: {
      const auto text = parse_quoted(line());
      if (!text) fail("a text is not quoted as Python does");
      push_old_text(keep(*text));
      break;
    }
    case Op::unicode_line: {
      const auto text = parse_raw_unicode(line());
      if (!text) fail("an escape in a text is wrong");
      push_text(keep(*text));
      break;
    }
    case Op::binstring: {
      const auto length = number<int32_t>();
      if (length < 0) fail("a negative length");
      push_old_text(take(static_cast<uint64_t>(length)));
      break;
    }
    case Op::short_binstring:
      push_old_text(take(number<uint8_t>()));
      break;
    case Op::short_binunicode:
      push_text(take(number<uint8_t>()));
      break;
    case Op::binunicode:
      push_text(take(number<uint32_t>()));
      break;
    case Op::binunicode8:
      push_text(take(number<uint64_t>()));
      break;
    case Op::short_binbytes:
      push_span(Kind::bytes, take(number<uint8_t>()));
      break;
    case Op::binbytes:
      push_span(Kind::bytes, take(number<uint32_t>()));
      break;
    case Op::binbytes8:
      push_span(Kind::bytes, take(number<uint64_t>()));
      break;
    case Op::bytearray8:
      push_span(Kind::bytes, take(number<uint64_t>()), true);
      break;

    case Op::empty_tuple:
      push(Node{.kind = Kind::tuple, .flag = false, .length = 0, .index = 0});
      break;
    case Op::tuple1:
    case Op::tuple2:
    case Op::tuple3: {
      const size_t count = 1 + static_cast<uint8_t>(*opcode_) - static_cast<size_t>(Op::tuple1);
      need(count);
      const auto items = std::span<const Node>(stack_).last(count);
      const Node made = container(Kind::tuple, items);
      drop(items);
      push(made);
      break;
    }
    case Op::tuple:
    case Op::list:
    case Op::dict:
    case Op::frozenset: {
      const auto items = above_mark();
      const Op op = static_cast<Op>(*opcode_);
      if (op == Op::dict && items.size() % 2 != 0) fail("a key has no value");
      const Node made = container(op == Op::tuple  ? Kind::tuple
                                  : op == Op::list ? Kind::list
                                  : op == Op::dict ? Kind::dict
                                                   : Kind::frozenset,
                                  items);
      drop(items);
      push(made);
      break;
    }
    case Op::empty_list:
      push(container(Kind::list, {}));
      break;
    case Op::empty_dict:
      push(container(Kind::dict, {}));
      break;
    case Op::empty_set:
      push(container(Kind::set, {}));
      break;
    case Op::append: {
      const Node item = pop();
      append(top(), std::span(&item, 1));
      break;
    }
    case Op::appends: {
      const auto items = above_mark();
      need(items.size() + 1);
      append(stack_[stack_.size() - items.size() - 1], items);
      drop(items);
      break;
    }
    case Op::setitem: {
      need(3);
      const auto items = std::span<const Node>(stack_).last(2);
      set_items(stack_[stack_.size() - 3], items);
      drop(items);
      break;
    }
    case Op::setitems: {
      const auto items = above_mark();
      need(items.size() + 1);
      set_items(stack_[stack_.size() - items.size() - 1], items);
      drop(items);
      break;
    }
    case Op::additems: {
      const auto items = above_mark();
      need(items.size() + 1);
      add_items(stack_[stack_.size() - items.size() - 1], items);
      drop(items);
      break;
    }

    case Op::global: {
      const std::string_view module = line();
      push(global(module, line()));
      break;
    }
    case Op::stack_global: {
      const Node name = pop();
      const Node module = pop();
      push(global(text_of(module), text_of(name)));
      break;
    }
    case Op::reduce:
    case Op::newobj: {
      const Node arguments = pop();
      const Node type = pop();
      push(object(type, arguments, static_cast<Op>(*opcode_) == Op::reduce));
      break;
    }
    case Op::newobj_ex: {
      const Node keywords = pop();
      const Node arguments = pop();
      const Node type = pop();
      if (!keywords.is(Kind::dict))
        fail(fmt::format("the keyword arguments are {}, not a dict", name_of(keywords.kind)));
      const Node made = object(type, arguments, false);
      graph_.extras_[made.index].keywords = keywords;
      push(made);
      break;
    }
    case Op::inst: {
      const std::string_view module = line();
      const Node type = global(module, line());
      const auto items = above_mark();
      const Node made = object(type, container(Kind::tuple, items), true);
      drop(items);
      push(made);
      break;
    }
    case Op::obj: {
      const auto items = above_mark();
      if (items.empty()) fail("the stack is empty");
      const Node made = object(items[0], container(Kind::tuple, items.subspan(1)), true);
      drop(items);
      push(made);
      break;
    }
    case Op::build: {
      const Node state = pop();
      build(top(), state);
      break;
    }

    case Op::binpersid: {
      const Node id = pop();
      push(container(Kind::persistent, std::span(&id, 1)));
      break;
    }
    case Op::persid: {
      push_text(line());
      const Node id = pop();
      push(container(Kind::persistent, std::span(&id, 1)));
      break;
    }

    case Op::ext1:
    case Op::ext2:
    case Op::ext4:
      fail("extension codes have no meaning outside of the program that wrote them");
    case Op::next_buffer:
    case Op::readonly_buffer:
      fail("buffers outside of the pickle are not supported");
    default:
      fail("unknown opcode");
  }
  return true;
}

// Depth first and without recursion, each container once.
void PickleMachine::check_depth() const {
  if (!graph_.root.is_container()) return;
  struct Visit {
    uint64_t index;
    uint32_t next = 0;
    uint32_t height = 1;
  };
  constexpr uint32_t kOpen = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> heights(graph_.containers_.size(), 0);
  std::vector<Visit> path;
  const auto fail_at = [&](std::string_view problem) {
    throw std::invalid_argument(ErrorText(options_.operation, problem).fact("in", options_.source));
  };
  const auto enter = [&](const Node& node) {
    const uint32_t height = heights[node.index];
    if (height == kOpen) fail_at("a value contains itself");
    if (static_cast<int64_t>(path.size() + std::max(1U, height)) > options_.max_depth)
      fail_at(fmt::format("values lie deeper in one another than {}", options_.max_depth));
    if (height == 0) {
      heights[node.index] = kOpen;
      path.push_back({.index = node.index});
    } else if (!path.empty()) {
      path.back().height = std::max(path.back().height, 1 + height);
    }
  };
  const auto child = [&](Visit& visit) -> const Node* {
    const auto& container = graph_.containers_[visit.index];
    while (visit.next < container.count && !container.items[visit.next].is_container()) ++visit.next;
    if (visit.next < container.count) return &container.items[visit.next];
    const auto extra = graph_.extras_.find(visit.index);
    if (extra == graph_.extras_.end()) return nullptr;
    const Node* const more[] = {&extra->second.keywords, &extra->second.appended, &extra->second.items};
    return visit.next - container.count < 3 ? more[visit.next - container.count] : nullptr;
  };
  enter(graph_.root);
  while (!path.empty()) {
    const Node* const node = child(path.back());
    if (node != nullptr) {
      ++path.back().next;
      if (node->is_container()) enter(*node);
      continue;
    }
    const Visit done = path.back();
    path.pop_back();
    heights[done.index] = done.height;
    if (!path.empty()) path.back().height = std::max(path.back().height, 1 + done.height);
  }
}

PickleGraph read_pickle(std::span<const std::byte> bytes, const UnpickleOptions& options) {
  return PickleMachine(bytes, options).read();
}

}  // namespace sherd::format
