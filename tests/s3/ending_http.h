#pragma once
// A process that ends in the middle of what it asks of an object store.

#include <atomic>
#include <memory>
#include <utility>

#include "storage/http.h"

namespace sherd::testing {

/// Thrown by the request at which the process ends.
struct ProcessEnd {};

/// Lets some requests through and then none: the process is gone. The request that it ends at reaches the store or not.
class EndingHttp final : public Http {
 public:
  EndingHttp(int64_t requests, bool last_one_arrives, std::shared_ptr<Http> http = make_http())
      : http_(std::move(http)), left_(requests), last_one_arrives_(last_one_arrives) {}

  HttpAnswer send(const HttpRequest& request) override {
    const int64_t left = left_--;
    if (left > 0) return http_->send(request);
    if (left == 0 && last_one_arrives_) http_->send(request);
    throw ProcessEnd();
  }
  bool ended() const { return left_ < 0; }

 private:
  std::shared_ptr<Http> http_;
  std::atomic<int64_t> left_;
  bool last_one_arrives_;
};

}  // namespace sherd::testing
