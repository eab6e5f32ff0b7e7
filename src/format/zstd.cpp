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

struct ZstdWriter::State {
  Take take;
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::string part = std::string(ZSTD_CStreamOutSize(), '\0');

  // Until all of `bytes` is taken in, or, at the end, everything is handed out.
  void run(std::span<const std::byte> bytes, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    size_t left = 1;
    while (in.pos < in.size || (end == ZSTD_e_end && left != 0)) {
      ZSTD_outBuffer piece{part.data(), part.size(), 0};
      left = ZSTD_compressStream2(context.get(), &piece, &in, end);
      if (ZSTD_isError(left) != 0) {
        throw std::runtime_error(
            ErrorText("save", "an item could not be compressed").fact("zstd says", ZSTD_getErrorName(left)));
      }
      if (piece.pos > 0) take(std::as_bytes(std::span(part)).first(piece.pos));
    }
  }
};

ZstdWriter::ZstdWriter(Take take) : state_(std::make_unique<State>(State{std::move(take)})) {}
ZstdWriter::~ZstdWriter() = default;
void ZstdWriter::add(std::span<const std::byte> bytes) { state_->run(bytes, ZSTD_e_continue); }
void ZstdWriter::finish() { state_->run({}, ZSTD_e_end); }

}  // namespace sherd::format
