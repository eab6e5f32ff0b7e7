// An object, open for reading: requests for its bytes, several under way at once.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "storage/io_error.h"
#include "storage/s3.h"

namespace sherd {
namespace {

// A request takes milliseconds before the first byte comes: it is worth reading some bytes that nobody wants.
constexpr int64_t kGap = int64_t{128} << 10;
constexpr int64_t kTogether = int64_t{1} << 20;
// Larger ones come in pieces, side by side.
constexpr int64_t kPiece = int64_t{8} << 20;

int64_t end_of(const ReadRequest& request) { return request.offset + static_cast<int64_t>(request.into.size()); }

class S3File final : public StoredFile {
 public:
  S3File(std::shared_ptr<S3Client> client, std::string key) : client_(std::move(client)), key_(std::move(key)) {
    std::optional<S3Object> object = client_->head(key_);
    if (!object) throw_no_such_file("open", client_->name(key_));
    object_ = std::move(*object);
  }

  int64_t size() const override { return object_.size; }

  void read(std::span<const ReadRequest> requests) const override {
    std::vector<ReadRequest> ordered;
    for (ReadRequest request : requests) {
      if (request.into.empty()) continue;
      if (end_of(request) > size()) throw_too_short(client_->name(key_), size(), {request.offset, end_of(request)});
      for (; !request.into.empty(); cut(request, kPiece)) {
        ordered.push_back({request.offset, request.into.first(std::min<size_t>(request.into.size(), kPiece))});
      }
    }
    std::ranges::sort(ordered, {}, &ReadRequest::offset);
    // Neighbours come by one request.
    std::vector<std::span<const ReadRequest>> groups;
    for (size_t begin = 0, end = 0; begin < ordered.size(); begin = end) {
      int64_t reach = end_of(ordered[begin]);
      for (end = begin + 1; end < ordered.size(); ++end) {
        const int64_t further = std::max(reach, end_of(ordered[end]));
        if (ordered[end].offset - reach > kGap || further - ordered[begin].offset > kTogether) break;
        reach = further;
      }
      groups.push_back(std::span(ordered).subspan(begin, end - begin));
    }
    for_each_request(groups.size(), [&](size_t i) { read_group(groups[i]); });
  }

 private:
  static void cut(ReadRequest& request, int64_t size) {
    const auto taken = std::min<size_t>(request.into.size(), static_cast<size_t>(size));
    request.offset += static_cast<int64_t>(taken);
    request.into = request.into.subspan(taken);
  }

  void read_group(std::span<const ReadRequest> group) const {
    if (group.size() == 1) return client_->get(key_, object_.etag, group[0]);
    const int64_t begin = group[0].offset;
    int64_t end = begin;
    for (const ReadRequest& request : group) end = std::max(end, end_of(request));
    std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
    client_->get(key_, object_.etag, {begin, bytes});
    for (const ReadRequest& request : group) {
      std::memcpy(request.into.data(), bytes.data() + (request.offset - begin), request.into.size());
    }
  }

  std::shared_ptr<S3Client> client_;
  std::string key_;
  S3Object object_;
};

}  // namespace

std::unique_ptr<StoredFile> open_s3_file(const std::shared_ptr<S3Client>& client, const std::string& key) {
  return std::make_unique<S3File>(client, key);
}

}  // namespace sherd
