#pragma once
// The calls of S3 that storage makes. Each is tried again, after a while, when the store is busy or the connection
// breaks, and throws std::runtime_error when that does not help, or when the store refuses. From several threads at
// once.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sherd/storage.h"
#include "storage/http.h"
#include "storage/s3_sign.h"

namespace sherd {

struct S3Object {
  int64_t size = 0;
  std::string etag;   // another one where the object was replaced
  std::string draft;  // the id of the draft that it came from
};

struct S3Listing {
  std::vector<std::string> keys;
  std::vector<std::string> folders;  // keys that go on after the delimiter, up to and with it
};

class S3Client {
 public:
  /// Empty options are taken from the environment.
  S3Client(const S3Options& options, std::shared_ptr<Http> http);

  /// Nothing where there is no such object.
  std::optional<S3Object> head(const std::string& key);
  /// Bytes from `offset` on; throws where the object is shorter, is gone, or is another than the one with this etag.
  void get(const std::string& key, const std::string& etag, ReadRequest request);
  /// The whole of a small one.
  std::string get(const std::string& key);
  /// The same, nothing where there is no such object.
  std::optional<std::string> find(const std::string& key);
  void put(const std::string& key, std::span<const std::byte> bytes, const std::string& draft);
  void copy(const std::string& from, const std::string& to);
  /// One that is not there is no error.
  void remove(const std::string& key);
  S3Listing list(const std::string& prefix, const std::string& delimiter = "", int most = 0);

  /// An object in parts, each but the last at least 5 MiB. It is there when it is completed.
  std::string start_upload(const std::string& key, const std::string& draft);
  /// Parts count from 1. Returns the part's etag.
  std::string put_part(const std::string& key, const std::string& upload, int part, std::span<const std::byte> bytes);
  void complete_upload(const std::string& key, const std::string& upload, const std::vector<std::string>& etags,
                       const std::string& draft);
  /// One that is not there is no error.
  void abort_upload(const std::string& key, const std::string& upload);

  /// "s3://bucket/key", for texts.
  std::string name(const std::string& key) const { return "s3://" + bucket_ + "/" + key; }

 private:
  struct Request {
    std::string operation;  // for texts
    std::string method;
    std::string key;
    S3Pairs query = {};
    S3Pairs headers = {};
    std::span<const std::byte> body = {};
    std::span<std::byte> into = {};
    std::vector<int> also = {};  // statuses that are no errors
  };
  HttpAnswer send(const Request& request);
  HttpAnswer send_once(const Request& request);
  [[noreturn]] void refuse(const Request& request, const HttpAnswer& answer) const;

  std::shared_ptr<Http> http_;
  std::string endpoint_;  // "https://host"
  std::string host_;
  std::string bucket_;
  S3Keys keys_;
  int retries_;
};

}  // namespace sherd
