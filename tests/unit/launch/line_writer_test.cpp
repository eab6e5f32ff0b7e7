#include "launch/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace sherd {
namespace {

struct TestPipe {
  std::array<int, 2> ends;
  TestPipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~TestPipe() {
    close_read();
    close_write();
  }
  void close_read() { close_end(ends[0]); }
  void close_write() { close_end(ends[1]); }
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  std::string read_all() {
    close_write();
    std::string result;
    std::array<char, 4096> bytes;
    for (ssize_t got; (got = ::read(ends[0], bytes.data(), bytes.size())) > 0;)
      result.append(bytes.data(), static_cast<size_t>(got));
    return result;
  }
};

TEST(LineWriterTest, WritesWholeLinesWithThePrefix) {
  TestPipe pipe;
  LineWriter writer(pipe.ends[1], "[3] ");
  EXPECT_TRUE(writer.write("one\ntw"));
  EXPECT_TRUE(writer.write("o"));
  EXPECT_TRUE(writer.write("\n\nthree"));
  EXPECT_TRUE(writer.flush());
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(pipe.read_all(), "[3] one\n[3] two\n[3] \n[3] three\n");
}

TEST(LineWriterTest, LinesOfTwoWritersDoNotMix) {
  TestPipe pipe;
  LineWriter a(pipe.ends[1], "[0] "), b(pipe.ends[1], "[1] ");
  a.write("half a");
  b.write("half b");
  a.write(" line\n");
  b.write(" line\n");
  EXPECT_EQ(pipe.read_all(), "[0] half a line\n[1] half b line\n");
}

TEST(LineWriterTest, ALineWithoutEndIsBroken) {
  TestPipe pipe;
  std::string read;
  std::thread reader([&] {
    std::array<char, 1 << 16> bytes;
    for (ssize_t got; (got = ::read(pipe.ends[0], bytes.data(), bytes.size())) > 0;)
      read.append(bytes.data(), static_cast<size_t>(got));
  });
  LineWriter writer(pipe.ends[1], "");
  const std::string part(1 << 18, 'x');
  for (int i = 0; i < 5; ++i) writer.write(part);
  pipe.close_write();
  reader.join();
  EXPECT_EQ(read.size(), 5 * part.size() + 1);
  EXPECT_EQ(read.back(), '\n');
}

TEST(LineWriterTest, SaysWhenNobodyReads) {
  const auto old = ::signal(SIGPIPE, SIG_IGN);
  TestPipe pipe;
  pipe.close_read();
  LineWriter writer(pipe.ends[1], "");
  EXPECT_FALSE(writer.write("text\n"));
  ::signal(SIGPIPE, old);
}

TEST(LineWriterTest, WaitsForADescriptorThatDoesNotBlock) {
  TestPipe pipe;
  ::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  const std::string text(1 << 20, 'y');
  std::thread writer([&] {
    EXPECT_TRUE(write_all(pipe.ends[1], text));
    pipe.close_write();
  });
  std::string read;
  std::array<char, 1 << 16> bytes;
  for (ssize_t got; (got = ::read(pipe.ends[0], bytes.data(), bytes.size())) > 0;)
    read.append(bytes.data(), static_cast<size_t>(got));
  writer.join();
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace sherd
