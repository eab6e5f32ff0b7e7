#include "storage/s3_client.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <random>
#include <stdexcept>
#include <thread>

#include "sherd/error.h"
#include "storage/io_error.h"
#include "storage/s3_xml.h"

namespace sherd {
namespace {

// Beside an object's bytes: the id of the draft that wrote it.
constexpr const char* kDraftHeader = "x-amz-meta-sherd-draft";

std::string first_of(const std::string& given, std::initializer_list<const char*> variables) {
  if (!given.empty()) return given;
  for (const char* name : variables) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

std::string header(const HttpAnswer& answer, const std::string& name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

// Busy, or broken on the way: worth another try.
bool may_pass(const HttpAnswer& answer) {
  return !answer.failure.empty() || answer.status >= 500 || answer.status == 429 || answer.status == 408;
}

// Some calls answer that all is well before they know.
bool has_error_inside(const HttpAnswer& answer) {
  return answer.status / 100 == 2 && !xml_elements(answer.body, "Error").empty();
}

void wait_before(int attempt) {
  thread_local std::minstd_rand random(std::random_device{}());
  // 50 ms, doubled each time up to 5 s, and half of that by chance, so that many ranks do not come back together.
  const int64_t most = std::min<int64_t>(int64_t{50} << std::min(attempt, 10), 5000);
  std::this_thread::sleep_for(std::chrono::milliseconds(most / 2 + static_cast<int64_t>(random()) % (most / 2 + 1)));
}

std::string help_for(const HttpAnswer& answer) {
  if (answer.status == 403 || answer.status == 401) {
    return "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and what that user may do with the bucket";
  }
  if (answer.status == 404 && xml_text(answer.body, "Code") == "NoSuchBucket") return "make the bucket first";
  if (answer.status == 301 || answer.status == 307) return "the bucket is in another region: set S3Options::region";
  if (!answer.failure.empty()) return "check S3Options::endpoint or AWS_ENDPOINT_URL, and the network";
  return {};
}

}  // namespace

S3Client::S3Client(const S3Options& options, std::shared_ptr<Http> http)
    : http_(std::move(http)),
      endpoint_(first_of(options.endpoint, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})),
      bucket_(options.bucket),
      keys_{.access_key = first_of(options.access_key, {"AWS_ACCESS_KEY_ID"}),
            .secret_key = first_of(options.secret_key, {"AWS_SECRET_ACCESS_KEY"}),
            .session_token = first_of(options.session_token, {"AWS_SESSION_TOKEN"}),
            .region = first_of(options.region, {"AWS_REGION", "AWS_DEFAULT_REGION"})},
      retries_(options.retries) {
  if (keys_.region.empty()) keys_.region = "us-east-1";
  if (endpoint_.empty()) endpoint_ = fmt::format("https://s3.{}.amazonaws.com", keys_.region);
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  if (endpoint_.find("://") == std::string::npos) endpoint_ = "https://" + endpoint_;
  host_ = endpoint_.substr(endpoint_.find("://") + 3);
  if (bucket_.empty())
    throw std::invalid_argument(ErrorText("s3_storage", "no bucket").help("S3Options{.bucket = \"name\"}"));
  if (keys_.access_key.empty() || keys_.secret_key.empty()) {
    throw std::invalid_argument(ErrorText("s3_storage", "no keys")
                                    .fact("bucket", bucket_)
                                    .help("export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=..."));
  }
}

HttpAnswer S3Client::send_once(const Request& request) {
  S3Call call{.method = request.method,
              .host = host_,
              .path = "/" + bucket_ + (request.key.empty() ? "" : "/" + request.key),
              .query = request.query,
              .headers = request.headers};
  const std::time_t now = std::time(nullptr);
  sign(call, keys_, fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(now)));
  std::string url = endpoint_ + url_encode(call.path, true);
  if (!call.query.empty()) url += "?" + query_text(call.query);
  return http_->send({call.method, url, call.headers, request.body, request.into});
}

HttpAnswer S3Client::send(const Request& request) {
  for (int attempt = 0;; ++attempt) {
    HttpAnswer answer = send_once(request);
    const bool inside = has_error_inside(answer);
    const bool fine =
        answer.failure.empty() && !inside &&
        (answer.status / 100 == 2 || std::ranges::find(request.also, answer.status) != request.also.end());
    if (fine) return answer;
    if ((!may_pass(answer) && !inside) || attempt == retries_) refuse(request, answer);
    wait_before(attempt);
  }
}

void S3Client::refuse(const Request& request, const HttpAnswer& answer) const {
  const std::string code = xml_text(answer.body, "Code");
  std::string problem = !answer.failure.empty() ? answer.failure : xml_text(answer.body, "Message");
  if (problem.empty()) problem = "the store refused";
  ErrorText text(request.operation, problem);
  text.fact("file", name(request.key));
  for (const auto& [name, value] : request.headers) {
    if (name == "range") text.fact("bytes", value);
  }
  text.fact("endpoint", endpoint_);
  if (answer.status != 0) text.fact("status", fmt::format("{} {}", answer.status, code));
  if (may_pass(answer)) text.fact("tried", fmt::format("{} times", retries_ + 1));
  if (const std::string help = help_for(answer); !help.empty()) text.help(help);
  throw StorageFailure(text);
}

std::optional<S3Object> S3Client::head(const std::string& key) {
  const HttpAnswer answer = send({.operation = "look for", .method = "HEAD", .key = key, .also = {404}});
  if (answer.status == 404) return std::nullopt;
  return S3Object{std::strtoll(header(answer, "content-length").c_str(), nullptr, 10), header(answer, "etag"),
                  header(answer, kDraftHeader)};
}

void S3Client::get(const std::string& key, const std::string& etag, ReadRequest request) {
  if (request.into.empty()) return;
  const ByteRange bytes{request.offset, request.offset + static_cast<int64_t>(request.into.size())};
  const Request call{.operation = "read",
                     .method = "GET",
                     .key = key,
                     .headers = {{"if-match", etag}, {"range", fmt::format("bytes={}-{}", bytes.begin, bytes.end - 1)}},
                     .into = request.into,
                     .also = {404, 412, 416}};
  const HttpAnswer answer = send(call);
  if (answer.status == 200 && bytes.begin != 0) refuse(call, answer);  // the whole file, from its beginning
  if (answer.status == 404 || answer.status == 412) {
    throw std::runtime_error(ErrorText("read", "the file was removed or replaced while it was open")
                                 .fact("file", name(key))
                                 .help("open it again: an object store does not keep what was there before"));
  }
  if (answer.status == 416 || answer.into_size < request.into.size()) {
    throw_too_short(name(key), bytes.begin + static_cast<int64_t>(answer.into_size), bytes);
  }
}

std::string S3Client::get(const std::string& key) {
  return send({.operation = "read", .method = "GET", .key = key}).body;
}

std::optional<std::string> S3Client::find(const std::string& key) {
  HttpAnswer answer = send({.operation = "read", .method = "GET", .key = key, .also = {404}});
  if (answer.status == 404) return std::nullopt;
  return std::move(answer.body);
}

void S3Client::put(const std::string& key, std::span<const std::byte> bytes, const std::string& draft) {
  send({.operation = "write", .method = "PUT", .key = key, .headers = {{kDraftHeader, draft}}, .body = bytes});
}

void S3Client::copy(const std::string& from, const std::string& to) {
  send({.operation = "commit",
        .method = "PUT",
        .key = to,
        .headers = {{"x-amz-copy-source", url_encode("/" + bucket_ + "/" + from, true)}}});
}

void S3Client::remove(const std::string& key) {
  send({.operation = "remove", .method = "DELETE", .key = key, .also = {404}});
}

S3Listing S3Client::list(const std::string& prefix, const std::string& delimiter, int most) {
  S3Listing listing;
  std::string token;
  do {
    S3Pairs query = {{"list-type", "2"}, {"prefix", prefix}};
    if (!delimiter.empty()) query.emplace_back("delimiter", delimiter);
    if (most > 0) query.emplace_back("max-keys", std::to_string(most));
    if (!token.empty()) query.emplace_back("continuation-token", token);
    const HttpAnswer answer = send({.operation = "list", .method = "GET", .key = "", .query = query});
    for (const std::string_view found : xml_elements(answer.body, "Contents")) {
      listing.keys.push_back(xml_text(found, "Key"));
    }
    for (const std::string_view found : xml_elements(answer.body, "CommonPrefixes")) {
      listing.folders.push_back(xml_text(found, "Prefix"));
    }
    token = xml_text(answer.body, "NextContinuationToken");
  } while (!token.empty() && most == 0);
  return listing;
}

std::string S3Client::start_upload(const std::string& key, const std::string& draft) {
  const HttpAnswer answer = send({.operation = "write",
                                  .method = "POST",
                                  .key = key,
                                  .query = {{"uploads", ""}},
                                  .headers = {{kDraftHeader, draft}}});
  return xml_text(answer.body, "UploadId");
}

std::string S3Client::put_part(const std::string& key, const std::string& upload, int part,
                               std::span<const std::byte> bytes) {
  return header(send({.operation = "write",
                      .method = "PUT",
                      .key = key,
                      .query = {{"partNumber", std::to_string(part)}, {"uploadId", upload}},
                      .body = bytes}),
                "etag");
}

void S3Client::complete_upload(const std::string& key, const std::string& upload, const std::vector<std::string>& etags,
                               const std::string& draft) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < etags.size(); ++i) {
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1, xml_escape(etags[i]));
  }
  body += "</CompleteMultipartUpload>";
  const Request request{.operation = "commit",
                        .method = "POST",
                        .key = key,
                        .query = {{"uploadId", upload}},
                        .body = std::as_bytes(std::span(body)),
                        .also = {404}};
  const HttpAnswer answer = send(request);
  // An earlier try may have done it, and its answer been lost.
  if (answer.status != 404) return;
  const std::optional<S3Object> found = head(key);
  if (!found || found->draft != draft) refuse(request, answer);
}

void S3Client::abort_upload(const std::string& key, const std::string& upload) {
  send({.operation = "discard", .method = "DELETE", .key = key, .query = {{"uploadId", upload}}, .also = {404}});
}

}  // namespace sherd
