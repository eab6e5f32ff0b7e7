#include <stdexcept>

#include "format/zstd.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

[[noreturn]] void fail() {
  throw std::invalid_argument(ErrorText("load", "an item is compressed, and this sherd was built without zstd")
                                  .fact("transform", "stream.zstd/1")
                                  .help("apt-get install libzstd-dev, and build sherd again"));
}

}  // namespace

std::string zstd_decode(std::span<const std::byte>, int64_t) { fail(); }

struct ZstdWriter::State {};

ZstdWriter::ZstdWriter(Take) {
  throw std::invalid_argument(ErrorText("save", "this sherd was built without zstd")
                                  .fact("transform", "stream.zstd/1")
                                  .help("apt-get install libzstd-dev, and build sherd again"));
}
ZstdWriter::~ZstdWriter() = default;
void ZstdWriter::add(std::span<const std::byte>) {}
void ZstdWriter::finish() {}

}  // namespace sherd::format
