#include "format/transforms.h"

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

std::string decode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes, int64_t most) {
  for (const std::string& transform : transforms) check(transform);
  std::string out(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t i = 0; i < transforms.size(); ++i) out = zstd_decode(std::as_bytes(std::span(out)), most);
  return out;
}

std::string encode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes) {
  for (const std::string& transform : transforms) check(transform);
  std::string out(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t i = 0; i < transforms.size(); ++i) out = zstd_encode(std::as_bytes(std::span(out)));
  return out;
}

}  // namespace sherd::format
