// A file of a draft in an object store. It is cut into parts that lie side by side, and a part is sent when all of it
// has come: straight from the caller's memory where one write brings all of it, from a buffer otherwise. A file of less
// than one part is one object.

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/s3.h"

namespace sherd {
namespace {

// The store takes 10,000 parts and no part below 5 MiB; parts that double every thousand hold 8 TiB.
int64_t part_size(int64_t part) { return int64_t{8} << 20 << (part / 1000); }

// The part that a byte is in, and where that begins.
std::pair<int64_t, int64_t> part_at(int64_t offset) {
  int64_t part = 0;
  int64_t begin = 0;
  while (offset >= begin + 1000 * part_size(part)) {
    begin += 1000 * part_size(part);
    part += 1000;
  }
  const int64_t further = (offset - begin) / part_size(part);
  return {part + further, begin + further * part_size(part)};
}

class S3Writer final : public FileWriter {
 public:
  S3Writer(std::shared_ptr<S3Client> client, S3DraftKeys draft, std::string name, int64_t size)
      : client_(std::move(client)), draft_(std::move(draft)), name_(std::move(name)), end_(size) {}

  ~S3Writer() override {
    if (finished_ || upload_.id.empty()) return;
    try {
      client_->abort_upload(key(), upload_.id);
      client_->remove(draft_.upload(name_));
    } catch (...) {  // NOLINT(bugprone-empty-catch): discarding the draft does it
    }
  }

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    std::vector<Piece> whole;  // parts that this write completes
    for (int64_t at = offset; !bytes.empty();) {
      const auto [part, begin] = part_at(at);
      const auto count = std::min(bytes.size(), static_cast<size_t>(begin + part_size(part) - at));
      if (static_cast<int64_t>(count) == part_size(part)) {
        whole.push_back({part, bytes.first(count), {}});
      } else {
        keep(part, at - begin, bytes.first(count), whole);
      }
      at += static_cast<int64_t>(count);
      bytes = bytes.subspan(count);
      const std::scoped_lock lock(mutex_);
      end_ = std::max(end_, at);
    }
    send(whole);
  }

  void finish() override {
    const auto [last, last_begin] = part_at(std::max<int64_t>(end_ - 1, 0));
    if (upload_.id.empty() && last == 0) {
      std::vector<std::byte> bytes = std::move(kept_[0].bytes);
      bytes.resize(static_cast<size_t>(end_));
      client_->put(draft_.data(name_), bytes, draft_.id);
    } else {
      std::vector<Piece> rest;
      for (int64_t part = 0; part <= last; ++part) {
        if (etags_.contains(part)) continue;
        std::vector<std::byte> bytes = std::move(kept_[part].bytes);
        bytes.resize(static_cast<size_t>(part == last ? end_ - last_begin : part_size(part)));
        rest.push_back({part, {}, std::move(bytes)});
        if (rest.size() == kS3Requests) send(rest);
      }
      send(rest);
      for (const auto& [part, etag] : etags_) upload_.etags.push_back(etag);
      note_upload();
    }
    finished_ = true;
  }

 private:
  // A part ready to be sent: in the caller's memory or in a buffer.
  struct Piece {
    int64_t part;
    std::span<const std::byte> bytes;
    std::vector<std::byte> buffer;
  };
  // A part of which something has come.
  struct Kept {
    std::vector<std::byte> bytes = {};
    int64_t filled = 0;
  };

  std::string key() const { return draft_.file(name_); }

  void keep(int64_t part, int64_t at, std::span<const std::byte> bytes, std::vector<Piece>& whole) {
    const std::scoped_lock lock(mutex_);
    Kept& kept = kept_[part];
    const auto end = static_cast<size_t>(at) + bytes.size();
    if (kept.bytes.size() < end) kept.bytes.resize(end);
    std::memcpy(kept.bytes.data() + at, bytes.data(), bytes.size());
    kept.filled += static_cast<int64_t>(bytes.size());
    if (kept.filled < part_size(part)) return;
    whole.push_back({part, {}, std::move(kept.bytes)});
    kept_.erase(part);
  }

  void send(std::vector<Piece>& pieces) {
    if (pieces.empty()) return;
    {
      const std::scoped_lock lock(mutex_);
      if (upload_.id.empty()) {
        upload_.id = client_->start_upload(key(), draft_.id);
        note_upload();  // at once: whoever discards the draft must know of it
      }
    }
    for_each_request(pieces.size(), [&](size_t i) {
      const Piece& piece = pieces[i];
      std::string etag =
          client_->put_part(key(), upload_.id, static_cast<int>(piece.part) + 1,
                            piece.bytes.empty() ? std::span<const std::byte>(piece.buffer) : piece.bytes);
      const std::scoped_lock lock(mutex_);
      etags_[piece.part] = std::move(etag);
    });
    pieces.clear();
  }

  void note_upload() {
    const std::string text = to_text(upload_);
    client_->put(draft_.upload(name_), std::as_bytes(std::span(text)), draft_.id);
  }

  std::shared_ptr<S3Client> client_;
  S3DraftKeys draft_;
  std::string name_;
  std::mutex mutex_;
  int64_t end_;
  S3Upload upload_;
  std::map<int64_t, Kept> kept_;          // by part
  std::map<int64_t, std::string> etags_;  // of the parts that were sent
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<FileWriter> create_s3_file(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft,
                                           const std::string& name, int64_t size) {
  return std::make_unique<S3Writer>(client, draft, name, size);
}

}  // namespace sherd
