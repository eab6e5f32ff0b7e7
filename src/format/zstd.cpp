#include "format/zstd.h"

#include <zstd.h>

#include <memory>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::format {
namespace {

[[noreturn]] void fail(const char* problem) {
  throw std::invalid_argument(ErrorText("load", "a compressed item is damaged")
                                  .fact("zstd says", problem)
                                  .help("another checkpoint: this one is damaged"));
}

}  // namespace

std::string zstd_decode(std::span<const std::byte> bytes, int64_t most) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  std::string out;
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::string part(ZSTD_DStreamOutSize(), '\0');
  size_t wanted = 1;
  while (in.pos < in.size || wanted != 0) {
    ZSTD_outBuffer piece{part.data(), part.size(), 0};
    const size_t before = in.pos;
    wanted = ZSTD_decompressStream(context.get(), &piece, &in);
    if (ZSTD_isError(wanted) != 0) fail(ZSTD_getErrorName(wanted));
    out.append(part.data(), piece.pos);
    if (static_cast<int64_t>(out.size()) > most) fail("it is larger than an item may be");
    if (wanted != 0 && piece.pos == 0 && in.pos == before) fail("it ends too early");
    if (in.pos == in.size && wanted == 0) break;
  }
  return out;
}

std::string zstd_encode(std::span<const std::byte> bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), ZSTD_CLEVEL_DEFAULT);
  if (ZSTD_isError(size) != 0) fail(ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace sherd::format
