#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace sherd::format {

/// Of one or more frames, with or without their sizes. Throws std::invalid_argument for damaged bytes, and for more
/// than `most`.
std::string zstd_decode(std::span<const std::byte> bytes, int64_t most);

/// One frame, from bytes that come in parts.
class ZstdWriter {
 public:
  using Take = std::function<void(std::span<const std::byte>)>;
  explicit ZstdWriter(Take take);
  ~ZstdWriter();
  ZstdWriter(const ZstdWriter&) = delete;
  ZstdWriter& operator=(const ZstdWriter&) = delete;

  void add(std::span<const std::byte> bytes);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sherd::format
