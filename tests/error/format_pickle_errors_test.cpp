// Pickles that nobody honest writes: every one is refused with a sentence, at once, and without running anything.

#include <gtest/gtest.h>

#include "format/pickle.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using namespace std::string_literals;

std::string refused(const std::string& bytes, const UnpickleOptions& options = {}) {
  return test::refusal([&] { unpickle(test::bytes_of(bytes), options); });
}
std::string problem(const std::string& bytes, const UnpickleOptions& options = {}) {
  const std::string text = refused(bytes, options);
  return text.substr(0, text.find('\n'));
}
std::string repeated(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

TEST(PickleErrors, AGlobalThatMayNotStandThereIsNamed) {
  UnpickleOptions options{.operation = "load", .source = "model/.metadata"};
  options.allowed = [](const Global& global) { return global.module == "collections"; };
  EXPECT_EQ(refused("cos\nsystem\n(Vrm -rf /\ntR.", options),
            "load: os.system may not stand here\n  in: model/.metadata\n  opcode: GLOBAL at byte 0");
  EXPECT_EQ(refused("\x80\x04\x8c\x02os\x8c\x06system\x93."s, options),
            "load: os.system may not stand here\n  in: model/.metadata\n  opcode: STACK_GLOBAL at byte 14");
  EXPECT_EQ(problem("(ios\nsystem\n.", options), "load: os.system may not stand here");
  EXPECT_EQ(problem("ccollections\nOrderedDict\n.", options), "nothing");
}

TEST(PickleErrors, WhatEndsTooEarlySaysWhere) {
  EXPECT_EQ(refused(""), "unpickle: the pickle ends without STOP\n  in: the pickle");
  EXPECT_EQ(refused("K"),
            "unpickle: the pickle ends too early: 0 bytes of 1\n  in: the pickle\n  opcode: BININT1 at byte 0");
  EXPECT_EQ(
      refused("X\xff\xff\xff\xff"s + "ab"),
      "unpickle: the pickle ends too early: 2 bytes of 4294967295\n  in: the pickle\n  opcode: BINUNICODE at byte 0");
  EXPECT_EQ(problem("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s),
            "unpickle: the pickle ends too early: 0 bytes of 18446744073709551615");
  EXPECT_EQ(problem("\x95\x08\0\0\0\0\0\0\0N."s), "unpickle: the pickle ends too early");
  EXPECT_EQ(problem("Vabc"), "unpickle: a line has no end");
}

TEST(PickleErrors, AnEmptyStackAMissingMarkAndAnEmptyMemoAreRefused) {
  EXPECT_EQ(refused("."), "unpickle: the stack is empty\n  in: the pickle\n  opcode: STOP at byte 0");
  EXPECT_EQ(problem("N(\x85."), "unpickle: the stack is empty");  // not below the mark
  EXPECT_EQ(problem("Nt."), "unpickle: there is no mark");
  EXPECT_EQ(problem("(o."), "unpickle: the stack is empty");
  EXPECT_EQ(problem("(Ne."), "unpickle: the stack is empty");
  EXPECT_EQ(problem("h\x05."), "unpickle: memo 5 holds nothing");
  EXPECT_EQ(problem("NN."), "unpickle: more than one value is left");
  EXPECT_EQ(problem("(N."), "unpickle: more than one value is left");
  EXPECT_EQ(problem("N.N"), "unpickle: 1 bytes follow the end of the pickle");
}

TEST(PickleErrors, AMemoIndexBeyondThePickleAllocatesNothing) {
  EXPECT_EQ(
      refused("Nr\xff\xff\xff\xff."s),
      "unpickle: memo 4294967295 lies beyond the pickle's length\n  in: the pickle\n  opcode: LONG_BINPUT at byte 1");
  EXPECT_EQ(problem("Np99999999999999999999999\n."), "unpickle: a memo index is no number");
}

TEST(PickleErrors, WrongKindsAreNamed) {
  EXPECT_EQ(problem("NK\x01"
                    "a."),
            "unpickle: None cannot be appended to");
  EXPECT_EQ(problem(")NNs."), "unpickle: a tuple has no items to set");
  EXPECT_EQ(problem("}(Nu."), "unpickle: a key has no value");
  EXPECT_EQ(problem("(Nd."), "unpickle: a key has no value");
  EXPECT_EQ(problem("](N\x90."), "unpickle: a list cannot be added to");
  EXPECT_EQ(problem("K\x01)R."), "unpickle: an int is no class or function");
  EXPECT_EQ(problem("ca\nb\n]R."), "unpickle: the arguments are a list, not a tuple");
  EXPECT_EQ(problem("]Nb."), "unpickle: a list has no state to build");
  EXPECT_EQ(problem("ca\nb\n)\x81Nb}b."), "unpickle: an object is built twice");
  EXPECT_EQ(problem("K\x01K\x02\x93."), "unpickle: a name is an int, not a text");
}

TEST(PickleErrors, UnknownOpcodesExtensionsAndBuffersAreRefused) {
  EXPECT_EQ(refused("\x80\x02\xfe."), "unpickle: unknown opcode\n  in: the pickle\n  opcode: 0xfe at byte 2");
  EXPECT_EQ(problem("\x80\x06N."), "unpickle: a protocol above 5");
  EXPECT_EQ(problem("\x82\x01."), "unpickle: extension codes have no meaning outside of the program that wrote them");
  EXPECT_EQ(problem("\x97."), "unpickle: buffers outside of the pickle are not supported");
}

TEST(PickleErrors, NumbersAndTextsThatAreNoneAreRefused) {
  EXPECT_EQ(problem("I1x\n."), "unpickle: an int is no number");
  EXPECT_EQ(problem("I\n."), "unpickle: an int is no number");
  EXPECT_EQ(problem("F1.2.3\n."), "unpickle: a float is no number");
  EXPECT_EQ(problem("L" + repeated("9", 5000) + "L\n."), "unpickle: an int of 5000 digits, more than 4300");
  EXPECT_EQ(problem("X\x02\0\0\0\xc0\x80."s), "unpickle: a text is not UTF-8");
  EXPECT_EQ(problem("S'abc\n."), "unpickle: a text is not quoted as Python does");
  EXPECT_EQ(problem("V\\u12\n."), "unpickle: an escape in a text is wrong");
}

TEST(PickleErrors, ADeepNestIsRefusedHoweverItIsMade) {
  const size_t count = 1000000;
  EXPECT_EQ(refused(repeated("]", count) + repeated("a", count - 1) + "."),
            "unpickle: values lie deeper in one another than 1000\n  in: the pickle");
  EXPECT_EQ(problem(")" + repeated("\x85", count) + "."), "unpickle: values lie deeper in one another than 1000");
  EXPECT_EQ(problem(repeated("(", count) + repeated("t", count) + "."),
            "unpickle: values lie deeper in one another than 1000");
  EXPECT_EQ(problem(repeated("]", 1000) + repeated("a", 999) + "."), "nothing");
  EXPECT_EQ(problem(repeated("]", 1001) + repeated("a", 1000) + "."),
            "unpickle: values lie deeper in one another than 1000");
  // Through the memo, from the inside out, so that no path is ever open while it is made.
  std::string chain = "]p0\n0";
  for (int i = 1; i <= 2000; ++i) chain += "]p" + std::to_string(i) + "\ng" + std::to_string(i - 1) + "\na0";
  EXPECT_EQ(problem(chain + "g2000\n."), "unpickle: values lie deeper in one another than 1000");
  EXPECT_EQ(problem(chain + "g999\n."), "nothing");
}

TEST(PickleErrors, AValueThatContainsItselfIsRefused) {
  EXPECT_EQ(refused("]q\0h\0"
                    "a."s),
            "unpickle: a value contains itself\n  in: the pickle");
  EXPECT_EQ(problem("ca\nb\n)\x81q\0h\0"
                    "b."s),
            "unpickle: a value contains itself");
}

TEST(PickleErrors, SharedValuesCostWhatThePickleIsLong) {
  // Two to the power of 100 leaves, in 100 lists.
  std::string laughs = "]q\0"s;
  for (char i = 1; i < 100; ++i)
    laughs += "](h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" + i;
  for (char i = 1; i < 100; ++i) laughs += "\x86";
  laughs += ".";
  EXPECT_EQ(problem(laughs), "nothing");
  EXPECT_LT(to_string(unpickle(test::bytes_of(laughs))).size(), 300U);
  // One text of 1 MB, a million times.
  std::string copies = "(X\x40\x42\x0f\0"s + std::string(1000000, 'x') + "q\0"s + repeated("h\0"s, 1000000) + "t.";
  EXPECT_EQ(problem(copies), "unpickle: the values would need much more memory than the pickle has bytes");
}

TEST(PickleErrors, ANameCostsWhatItIsLongWhereverItStands) {
  const std::string too_much = "unpickle: the values would need much more memory than the pickle has bytes";
  const std::string name = "X\xa0\x86\x01\0"s + std::string(100000, 'x') + "q\0"s;
  const std::string type = name + "h\0\x93q\1"s;
  EXPECT_EQ(problem("(" + type + repeated("h\1"s, 500) + "t."), too_much);
  EXPECT_EQ(problem("(" + type + repeated("h\1)\x81"s, 500) + "t."), too_much);
  EXPECT_EQ(problem("(" + type + "h\1h\1)R" + "t."), "nothing");
  // Fetched and named ten thousand times, and left alone.
  EXPECT_EQ(problem(name + "h\0\x93"s + "0" + repeated("h\0h\0\x93"s + "0", 10000) + "N."), "nothing");
}

TEST(PickleErrors, TheNumberOfValuesIsBounded) {
  EXPECT_EQ(problem("(" + repeated("N", 101) + "t.", {.max_values = 100}), "unpickle: more than 100 values");
}

TEST(PickleErrors, AKeyThatStandsTwiceIsRefused) {
  EXPECT_EQ(problem("}(Va\nNVa\nNu."), "unpickle: a dict has the key 'a' twice");
  EXPECT_EQ(problem("}(K\x01NK\x01Nu."), "unpickle: a dict has the key 1 twice");
}

TEST(PickleErrors, ATensorOutsideOfItsStorageIsRefused) {
  const auto tensor = [](const std::string& rest) {
    return "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nK\x06tQ" + rest + "\x89NtR.";
  };
  EXPECT_EQ(problem(tensor("K\0K\x02K\x03\x86K\x03K\x01\x86"s)), "nothing");
  EXPECT_EQ(refused(tensor("K\x01K\x02K\x03\x86K\x03K\x01\x86")),
            "unpickle: a tensor lies outside of its storage\n  in: the pickle\n"
            "  tensor: f32[2, 3], strides [3, 1], offset 1\n  storage: 0 of 24 bytes");
  EXPECT_EQ(problem(tensor("K\0L4611686018427387904L\nL4611686018427387904L\n\x86L4611686018427387904L\nK\x08\x86"s)),
            "unpickle: a tensor has an impossible size");
  EXPECT_EQ(problem(tensor("K\0K\x02\x85)"s)), "unpickle: a tensor has not as many strides as sizes");
  EXPECT_EQ(problem(tensor("J\xff\xff\xff\xff))"s)), "unpickle: a tensor's numbers are no sizes");
  EXPECT_EQ(problem(tensor("K\0("s + repeated("K\1", 65) + "t)")), "unpickle: a tensor has 65 dims, more than 64");
}

}  // namespace
}  // namespace sherd::format
