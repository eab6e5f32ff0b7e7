#include "s3/server.h"

#include <atomic>

#include "command.h"

namespace sherd::testing {
namespace {

constexpr const char* kBucket = "sherd-tests";

struct Server {
  Command command{{SHERD_PYTHON, SHERD_SOURCE_DIR "/tests/s3/server.py", kBucket}};
  bool started = command.wait_for_lines(3) || command.wait_for_lines(3);
  std::vector<std::string> doors = split_lines(command.out());
  std::string missing = started ? "" : "no server for S3 here: " + command.err();
};

Server& server() {
  static Server one;
  return one;
}

}  // namespace

const std::string& s3_missing() { return server().missing; }

S3Options s3_options(S3Door door) {
  return {.bucket = kBucket,
          .endpoint = server().doors.at(static_cast<size_t>(door)),
          .access_key = "access-key",
          .secret_key = "secret/key+of=tests"};
}

std::shared_ptr<const std::string> s3_root() {
  static std::atomic<int> count = 0;
  return std::make_shared<const std::string>("tests/root " + std::to_string(count++));
}

}  // namespace sherd::testing
