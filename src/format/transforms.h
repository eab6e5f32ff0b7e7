#pragma once
// What may be done to an item on its way into a file: PyTorch's stream extensions, by their names.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sherd::format {

class ZstdWriter;

/// The bytes that an item was before `transforms` were applied, the last of them first: "stream.zstd/1". Throws
/// std::invalid_argument for a name that is not known, for bytes that are not what the name says, and for more than
/// `most`.
std::string decode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes, int64_t most);

/// `most` for the item of a chunk of so many bytes: those, its archive, and what compressing adds to what cannot be
/// compressed.
int64_t most_of_tensor(int64_t bytes);
/// The same for an object, of whose size nothing is known but how long its item is: 1 GiB, or more where the file has
/// some of it. A short file must not fill the memory.
int64_t most_of_object(int64_t item_length);

/// Tensors whose elements lie on top of each other (strides of 0), or nowhere, take more memory than the file has
/// bytes: so much at most where the file alone says how large they are.
inline constexpr int64_t kMostUnfolded = int64_t{1} << 30;

inline constexpr const char* kZstdTransform = "stream.zstd/1";

/// Applies transforms to bytes that come in parts, and hands out what they become. Throws std::invalid_argument for a
/// name that is not known, and where this build cannot do it.
class StreamEncoder {
 public:
  using Take = std::function<void(std::span<const std::byte>)>;
  StreamEncoder(const std::vector<std::string>& transforms, Take take);
  ~StreamEncoder();
  StreamEncoder(const StreamEncoder&) = delete;
  StreamEncoder& operator=(const StreamEncoder&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Hands out the rest. Nothing may be added afterwards.
  void finish();

 private:
  std::vector<std::unique_ptr<ZstdWriter>> writers_;  // the first takes what is added
};

/// The same for bytes that are there: the inverse of decode.
std::string encode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes);

}  // namespace sherd::format
