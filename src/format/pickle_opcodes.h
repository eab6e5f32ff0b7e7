#pragma once
// Python's names of the pickle opcodes.

#include <cstdint>
#include <string_view>

namespace sherd::format {

// clang-format off
enum class Op : uint8_t {
  mark = '(', stop = '.', pop = '0', pop_mark = '1', dup = '2', float_line = 'F', int_line = 'I', binint = 'J',
  binint1 = 'K', long_line = 'L', binint2 = 'M', none = 'N', persid = 'P', binpersid = 'Q', reduce = 'R',
  string_line = 'S', binstring = 'T', short_binstring = 'U', unicode_line = 'V', binunicode = 'X', append = 'a',
  build = 'b', global = 'c', dict = 'd', empty_dict = '}', appends = 'e', get = 'g', binget = 'h', inst = 'i',
  long_binget = 'j', list = 'l', empty_list = ']', obj = 'o', put = 'p', binput = 'q', long_binput = 'r',
  setitem = 's', tuple = 't', empty_tuple = ')', setitems = 'u', binfloat = 'G', binbytes = 'B', short_binbytes = 'C',
  proto = 0x80, newobj = 0x81, ext1 = 0x82, ext2 = 0x83, ext4 = 0x84, tuple1 = 0x85, tuple2 = 0x86, tuple3 = 0x87,
  newtrue = 0x88, newfalse = 0x89, long1 = 0x8a, long4 = 0x8b, short_binunicode = 0x8c, binunicode8 = 0x8d,
  binbytes8 = 0x8e, empty_set = 0x8f, additems = 0x90, frozenset = 0x91, newobj_ex = 0x92, stack_global = 0x93,
  memoize = 0x94, frame = 0x95, bytearray8 = 0x96, next_buffer = 0x97, readonly_buffer = 0x98,
};

constexpr std::string_view name_of(Op op) {
  switch (op) {
    case Op::mark: return "MARK";
    case Op::stop: return "STOP";
    case Op::pop: return "POP";
    case Op::pop_mark: return "POP_MARK";
    case Op::dup: return "DUP";
    case Op::float_line: return "FLOAT";
    case Op::int_line: return "INT";
    case Op::binint: return "BININT";
    case Op::binint1: return "BININT1";
    case Op::long_line: return "LONG";
    case Op::binint2: return "BININT2";
    case Op::none: return "NONE";
    case Op::persid: return "PERSID";
    case Op::binpersid: return "BINPERSID";
    case Op::reduce: return "REDUCE";
    case Op::string_line: return "STRING";
    case Op::binstring: return "BINSTRING";
    case Op::short_binstring: return "SHORT_BINSTRING";
    case Op::unicode_line: return "UNICODE";
    case Op::binunicode: return "BINUNICODE";
    case Op::append: return "APPEND";
    case Op::build: return "BUILD";
    case Op::global: return "GLOBAL";
    case Op::dict: return "DICT";
    case Op::empty_dict: return "EMPTY_DICT";
    case Op::appends: return "APPENDS";
    case Op::get: return "GET";
    case Op::binget: return "BINGET";
    case Op::inst: return "INST";
    case Op::long_binget: return "LONG_BINGET";
    case Op::list: return "LIST";
    case Op::empty_list: return "EMPTY_LIST";
    case Op::obj: return "OBJ";
    case Op::put: return "PUT";
    case Op::binput: return "BINPUT";
    case Op::long_binput: return "LONG_BINPUT";
    case Op::setitem: return "SETITEM";
    case Op::tuple: return "TUPLE";
    case Op::empty_tuple: return "EMPTY_TUPLE";
    case Op::setitems: return "SETITEMS";
    case Op::binfloat: return "BINFLOAT";
    case Op::binbytes: return "BINBYTES";
    case Op::short_binbytes: return "SHORT_BINBYTES";
    case Op::proto: return "PROTO";
    case Op::newobj: return "NEWOBJ";
    case Op::ext1: return "EXT1";
    case Op::ext2: return "EXT2";
    case Op::ext4: return "EXT4";
    case Op::tuple1: return "TUPLE1";
    case Op::tuple2: return "TUPLE2";
    case Op::tuple3: return "TUPLE3";
    case Op::newtrue: return "NEWTRUE";
    case Op::newfalse: return "NEWFALSE";
    case Op::long1: return "LONG1";
    case Op::long4: return "LONG4";
    case Op::short_binunicode: return "SHORT_BINUNICODE";
    case Op::binunicode8: return "BINUNICODE8";
    case Op::binbytes8: return "BINBYTES8";
    case Op::empty_set: return "EMPTY_SET";
    case Op::additems: return "ADDITEMS";
    case Op::frozenset: return "FROZENSET";
    case Op::newobj_ex: return "NEWOBJ_EX";
    case Op::stack_global: return "STACK_GLOBAL";
    case Op::memoize: return "MEMOIZE";
    case Op::frame: return "FRAME";
    case Op::bytearray8: return "BYTEARRAY8";
    case Op::next_buffer: return "NEXT_BUFFER";
    case Op::readonly_buffer: return "READONLY_BUFFER";
  }
  return {};
}
// clang-format on

}  // namespace sherd::format
