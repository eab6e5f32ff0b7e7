#pragma once
// Requests over HTTP, as an object store needs them.

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sherd {

struct HttpRequest {
  std::string method;
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::span<const std::byte> body = {};
  /// Where the body of an answer with status 2xx goes, if it is to go to memory of the caller. A longer one is cut off.
  std::span<std::byte> into = {};
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};
  size_t into_size = 0;      // bytes in `into`
  std::string failure = {};  // why there is no whole answer; empty where there is one
};

/// Sends requests, from several threads at once, and keeps connections for the next ones. Never throws for what the
/// network does.
class Http {
 public:
  virtual ~Http() = default;
  virtual HttpAnswer send(const HttpRequest& request) = 0;
};

/// Over libcurl, which is loaded when this is called first. Throws std::runtime_error where there is none.
std::shared_ptr<Http> make_http();

}  // namespace sherd
