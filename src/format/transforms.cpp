#include "format/transforms.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "format/zstd.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

// "stream.zstd/1", "stream.zstd@domain/1.2": a name, perhaps whose it is, and a version of which the first number
// counts.
bool is_zstd(const std::string& transform) {
  const size_t slash = transform.rfind('/');
  if (slash == std::string::npos) return false;
  const std::string name = transform.substr(0, transform.find('@'));
  const std::string version = transform.substr(slash + 1);
  return name.substr(0, slash) == "stream.zstd" && (version == "1" || version.starts_with("1."));
}

void check(const std::string& transform) {
  if (is_zstd(transform)) return;
  throw std::invalid_argument(ErrorText("load", "an item was changed in a way that is not known")
                                  .fact("transform", transform)
                                  .fact("known", "stream.zstd/1")
                                  .help("save it without this extension"));
}

}  // namespace

int64_t most_of_tensor(int64_t bytes) {
  constexpr int64_t kArchive = int64_t{1} << 20;
  const int64_t bounded = std::min(bytes, std::numeric_limits<int64_t>::max() / 2);
  return bounded + bounded / 128 + kArchive;
}

int64_t most_of_object(int64_t item_length) {
  constexpr int64_t kLeast = int64_t{1} << 30;
  constexpr int64_t kTimes = 16;
  return std::max(kLeast, kTimes * std::min(item_length, std::numeric_limits<int64_t>::max() / kTimes));
}

std::string decode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes, int64_t most) {
  for (const std::string& transform : transforms) check(transform);
  std::string out(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t i = 0; i < transforms.size(); ++i) out = zstd_decode(std::as_bytes(std::span(out)), most);
  return out;
}

StreamEncoder::StreamEncoder(const std::vector<std::string>& transforms, Take take) {
  for (const std::string& transform : transforms) check(transform);
  // What was done last is undone first: the last writer is made first.
  for (size_t i = 0; i < transforms.size(); ++i) {
    writers_.insert(writers_.begin(), std::make_unique<ZstdWriter>(std::move(take)));
    take = [next = writers_.front().get()](std::span<const std::byte> bytes) { next->add(bytes); };
  }
}

StreamEncoder::~StreamEncoder() = default;

void StreamEncoder::add(std::span<const std::byte> bytes) { writers_.front()->add(bytes); }

void StreamEncoder::finish() {
  for (const auto& writer : writers_) writer->finish();
}

std::string encode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes) {
  std::string out;
  if (transforms.empty()) return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  StreamEncoder encoder(transforms, [&](std::span<const std::byte> part) {
    out.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  encoder.add(bytes);
  encoder.finish();
  return out;
}

}  // namespace sherd::format
