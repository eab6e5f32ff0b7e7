// The opcodes of pickles.

#include "format/pickle_graph.h"

#include <bit>

#include "format/pickle_machine.h"

namespace sherd::format {

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
      const std::string_view module = name_line();
      push(global(module, name_line()));
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
        fail(fmt::format("the keyword arguments are {}, not a dict", kind_name(keywords.kind)));
      const Node made = object(type, arguments, false);
      graph_.extras_[made.index].keywords = keywords;
      push(made);
      break;
    }
    case Op::inst: {
      const std::string_view module = name_line();
      const Node type = global(module, name_line());
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

PickleGraph read_pickle(std::span<const std::byte> bytes, const UnpickleOptions& options) {
  return PickleMachine(bytes, options).read();
}

}  // namespace sherd::format
