#pragma once
// What the opcodes of a pickle work on: its bytes, a stack with marks, the memo, and the values made so far. It makes
// values and calls nothing.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "format/pickle_graph.h"
#include "format/pickle_opcodes.h"
#include "format/pickle_text.h"
#include "sherd/error.h"

namespace sherd::format {

/// Its methods stand here so that the loop over opcodes has them at hand: reading large metadata spends its time there.
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
  using Kind = Node::Kind;
  static constexpr size_t kMostDigits = 4300;  // Python's own bound
  static constexpr size_t kSmallPage = 64;
  static constexpr size_t kLargePage = size_t{1} << 16;

  static std::string_view kind_name(Kind kind) {
    constexpr std::string_view kNames[] = {"nothing", "None",   "a bool",    "an int",         "an int",  "a float",
                                           "a text",  "bytes",  "a name",    "a list",         "a tuple", "a set",
                                           "a set",   "a dict", "an object", "a persistent id"};
    return kNames[static_cast<size_t>(kind)];
  }

  [[noreturn]] void fail(std::string_view problem) const {
    ErrorText text(options_.operation, problem);
    text.fact("in", options_.source);
    if (opcode_ != nullptr) {
      const std::string_view name = name_of(static_cast<Op>(*opcode_));
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
        fail(fmt::format("{} cannot be appended to", kind_name(target.kind)));
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
        fail(fmt::format("{} has no items to set", kind_name(target.kind)));
    }
  }

  void add_items(const Node& target, std::span<const Node> items) {
    if (target.is(Kind::object)) return append(target, items);
    if (!target.is(Kind::set)) fail(fmt::format("{} cannot be added to", kind_name(target.kind)));
    extend(target, items);
  }

  // Globals and objects

  std::string_view name_line() {
    const std::string_view name = line();
    if (!is_utf8(name)) fail("a name is not UTF-8");
    return name;
  }

  /// Of names that are UTF-8: to look again at one that was fetched from the memo would not be linear in the input.
  Node global(std::string_view module, std::string_view name) {
    // Up to protocol 2, Python writes these under their names of Python 2.
    if (module == "__builtin__") module = "builtins";
    if (module == "copy_reg") module = "copyreg";
    if (options_.allowed && !options_.allowed(Global{std::string(module), std::string(name)})) {
      throw std::invalid_argument(
          ErrorText(options_.operation, fmt::format("{}.{} may not stand here", module, name))
              .fact("in", options_.source)
              .fact("opcode", fmt::format("{} at byte {}", name_of(static_cast<Op>(*opcode_)), opcode_ - begin_)));
    }
    graph_.globals_.push_back({module, name});
    return Node{.kind = Kind::global,
                .flag = module == "torch" && name == "Size",
                .length = 0,
                .index = graph_.globals_.size() - 1};
  }

  /// With room for the state that most objects get.
  Node object(const Node& type, const Node& arguments, bool called) {
    if (!type.is(Kind::global)) fail(fmt::format("{} is no class or function", kind_name(type.kind)));
    if (!arguments.is(Kind::tuple)) fail(fmt::format("the arguments are {}, not a tuple", kind_name(arguments.kind)));
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
    if (!target.is(Kind::object)) fail(fmt::format("{} has no state to build", kind_name(target.kind)));
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
    if (!node.is(Kind::text)) fail(fmt::format("a name is {}, not a text", kind_name(node.kind)));
    return node.text();
  }

  /// One opcode. False at the end of the pickle.
  bool step();
  /// Throws where values lie too deep in one another, or in themselves.
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

}  // namespace sherd::format
