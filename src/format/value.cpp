#include "format/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "format/negate.h"

namespace sherd::format {
namespace {

bool same(const std::shared_ptr<Value>& a, const std::shared_ptr<Value>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

bool same(const Tuple& a, const Tuple& b) { return a.items == b.items; }
bool same(const Set& a, const Set& b) {
  return a.frozen == b.frozen && a.items.size() == b.items.size() &&
         std::is_permutation(a.items.begin(), a.items.end(), b.items.begin());
}
bool same(const Dict& a, const Dict& b) {
  return a.ordered == b.ordered && a.items == b.items && same(a.state, b.state);
}
bool same(const Object& a, const Object& b) {
  return a.type == b.type && a.called == b.called && a.arguments == b.arguments && same(a.keywords, b.keywords) &&
         same(a.state, b.state) && a.appended == b.appended && same(a.items, b.items);
}

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}

std::string decimal(const BigInt& value) {
  std::vector<uint8_t> magnitude(value.bytes.begin(), value.bytes.end());  // little endian
  const bool negative = !magnitude.empty() && magnitude.back() >= 0x80;
  if (negative) negate(magnitude);
  std::string digits;
  while (!magnitude.empty()) {
    uint32_t rest = 0;
    for (size_t i = magnitude.size(); i-- > 0;) {
      rest = rest << 8 | magnitude[i];
      magnitude[i] = static_cast<uint8_t>(rest / 10);
      rest %= 10;
    }
    digits.push_back(static_cast<char>('0' + rest));
    while (!magnitude.empty() && magnitude.back() == 0) magnitude.pop_back();
  }
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

class TensorVisitor {
 public:
  explicit TensorVisitor(const std::function<void(const TensorRef&)>& visit) : visit_(visit) {}

  void go(const Value& value) {
    std::visit([this](const auto& content) { go_into(content); }, value.content());
  }

 private:
  template <class T>
  void go_into(const T& content) {
    if constexpr (requires { content.use_count(); }) {
      if (seen_.insert(content.get()).second) parts(*content);
    }
  }
  void parts(const TensorRef& tensor) { visit_(tensor); }
  void parts(const Global&) {}
  void parts(const List& list) {
    for (const Value& value : list) go(value);
  }
  void parts(const Tuple& tuple) { parts(tuple.items); }
  void parts(const Set& set) { parts(set.items); }
  void parts(const Dict& dict) {
    for (const auto& [key, value] : dict.items) {
      go(key);
      go(value);
    }
    if (dict.state != nullptr) go(*dict.state);
  }
  void parts(const Object& object) {
    parts(object.arguments);
    parts(object.keywords);
    if (object.state != nullptr) go(*object.state);
    parts(object.appended);
    parts(object.items);
  }

  const std::function<void(const TensorRef&)>& visit_;
  std::unordered_set<const void*> seen_;
};

/// Writes until the limit is reached, so that a value with millions of items costs no more than its beginning.
class Printer {
 public:
  Printer(std::string& text, size_t limit) : text_(text), limit_(limit) {}

  void print(const Value& value) {
    std::visit([this](const auto& content) { print(content); }, value.content());
  }

 private:
  bool full() const { return text_.size() > limit_; }

  void print(const None&) { text_ += "None"; }
  void print(bool value) { text_ += value ? "True" : "False"; }
  void print(int64_t value) { text_ += std::to_string(value); }
  void print(const BigInt& value) {
    constexpr size_t kMostBytes = 64;  // dividing all of them for every digit is slow for more
    if (value.bytes.size() > kMostBytes) {
      text_ += fmt::format("an int of {} bytes", value.bytes.size());
    } else {
      text_ += decimal(value);
    }
  }
  void print(double value) {
    // As Python prints it: 1.0, not 1.
    const std::string digits = fmt::format("{}", value);
    text_ += digits;
    if (digits.find_first_not_of("-0123456789") == std::string::npos) text_ += ".0";
  }
  void print(const std::complex<double>& value) { text_ += fmt::format("({}{:+}j)", value.real(), value.imag()); }
  void print(const std::string& value) { quoted(value, 0xFF); }
  void print(const Bytes& value) {
    text_ += value.array ? "bytearray(b" : "b";
    quoted(value.data, 0x7E);
    if (value.array) text_ += ")";
  }
  void print(const Global& value) { text_ += value.module + "." + value.name; }

  template <class T>
  void print(const std::shared_ptr<T>& pointer) {
    if (full()) return;
    print(*pointer);
  }
  void print(const List& list) { items("[", list, "]"); }
  void print(const Tuple& tuple) {
    items(tuple.size ? "torch.Size((" : "(", tuple.items, tuple.items.size() == 1 ? ",)" : ")");
    if (tuple.size) text_ += ")";
  }
  void print(const Set& set) {
    items(set.frozen ? "frozenset({" : "{", set.items, "}");
    if (set.frozen) text_ += ")";
  }
  void print(const Dict& dict) {
    text_ += dict.ordered ? "OrderedDict({" : "{";
    for (size_t i = 0; i < dict.items.size() && !full(); ++i) {
      if (i > 0) text_ += ", ";
      print(dict.items[i].first);
      text_ += ": ";
      print(dict.items[i].second);
    }
    text_ += dict.ordered ? "})" : "}";
  }
  void print(const Object& object) {
    print(object.type);
    items("(", object.arguments, ")");
    if (object.state != nullptr) {
      text_ += " with ";
      print(*object.state);
    }
  }
  void print(const TensorRef& tensor) {
    text_ += fmt::format("tensor {}{}", names_of(tensor.dtype).text, sherd::to_string(tensor.sizes));
  }

  void items(std::string_view open, const std::vector<Value>& values, std::string_view close) {
    text_ += open;
    for (size_t i = 0; i < values.size() && !full(); ++i) {
      if (i > 0) text_ += ", ";
      print(values[i]);
    }
    text_ += close;
  }

  void quoted(std::string_view value, unsigned char highest) {
    text_ += '\'';
    for (const char c : value) {
      if (full()) break;
      if (c == '\'' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f' || static_cast<unsigned char>(c) > highest) {
        text_ += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        text_ += c;
      }
    }
    text_ += '\'';
  }

  std::string& text_;
  size_t limit_;
};

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    const auto* text = name.as<std::string>();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

bool Value::operator==(const Value& other) const {
  return std::visit(
      [](const auto& a, const auto& b) {
        if constexpr (!std::is_same_v<decltype(a), decltype(b)>) {
          return false;
        } else if constexpr (requires {
                               *a;
                               a.use_count();
                             }) {
          return a == b || (a != nullptr && b != nullptr && same(*a, *b));
        } else {
          return a == b;
        }
      },
      content_, other.content_);
}

namespace {

class Changer {
 public:
  explicit Changer(const std::function<std::optional<Value>(const Value&)>& change) : change_(change) {}

  Value go(const Value& value) {
    const void* shared = std::visit(
        [](const auto& content) -> const void* {
          if constexpr (requires { content.use_count(); }) return content.get();
          return nullptr;
        },
        value.content());
    if (const auto found = made_.find(shared); shared != nullptr && found != made_.end()) return found->second;
    Value made = value;
    if (auto next = change_(made)) {
      made = std::move(*next);
      kept_.push_back(made);  // its parts are known by where they lie, where nothing else may come to lie
    }
    made = std::visit([&](const auto& content) { return anew(content); }, made.content());
    if (shared != nullptr) made_.emplace(shared, made);
    return made;
  }

 private:
  Value anew(const std::shared_ptr<List>& list) { return List(items(*list)); }
  Value anew(const std::shared_ptr<Tuple>& tuple) { return Tuple{items(tuple->items), tuple->size}; }
  Value anew(const std::shared_ptr<Set>& set) { return Set{items(set->items), set->frozen}; }
  Value anew(const std::shared_ptr<Dict>& dict) { return dict_of(*dict); }
  Value anew(const std::shared_ptr<Object>& object) {
    Object made{object->type,
                object->called,
                items(object->arguments),
                dict_of(object->keywords),
                state_of(object->state),
                items(object->appended),
                dict_of(object->items)};
    return made;
  }
  template <class T>
  Value anew(const T& other) {
    return other;
  }

  std::vector<Value> items(const std::vector<Value>& values) {
    std::vector<Value> made;
    made.reserve(values.size());
    for (const Value& value : values) made.push_back(go(value));
    return made;
  }
  Dict dict_of(const Dict& dict) {
    Dict made{.items = {}, .ordered = dict.ordered, .state = state_of(dict.state)};
    made.items.reserve(dict.items.size());
    for (const auto& [key, value] : dict.items) made.items.emplace_back(go(key), go(value));
    return made;
  }
  std::shared_ptr<Value> state_of(const std::shared_ptr<Value>& state) {
    return state ? std::make_shared<Value>(go(*state)) : nullptr;
  }

  const std::function<std::optional<Value>(const Value&)>& change_;
  std::unordered_map<const void*, Value> made_;
  std::vector<Value> kept_;
};

}  // namespace

Value changed(const Value& value, const std::function<std::optional<Value>(const Value&)>& change) {
  return Changer(change).go(value);
}

void for_each_tensor(const Value& value, const std::function<void(const TensorRef&)>& visit) {
  TensorVisitor(visit).go(value);
}

std::string to_string(const Value& value, size_t limit) {
  std::string text;
  Printer(text, limit).print(value);
  if (text.size() > limit) {
    text.resize(limit);
    // Not in the middle of a character.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
    text += "...";
  }
  return text;
}

}  // namespace sherd::format
