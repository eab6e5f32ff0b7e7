#pragma once
// Bytes in memory as a file.

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "sherd/storage.h"

namespace sherd::stored {

class MemoryFile final : public StoredFile {
 public:
  explicit MemoryFile(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(std::span<const ReadRequest> requests) const override {
    for (const ReadRequest& request : requests) {
      if (request.offset < 0 || request.offset > size() - static_cast<int64_t>(request.into.size())) {
        throw std::runtime_error("load: bytes beyond the end of a decompressed item");
      }
      std::memcpy(request.into.data(), bytes_.data() + request.offset, request.into.size());
    }
  }

 private:
  std::string bytes_;
};

}  // namespace sherd::stored
