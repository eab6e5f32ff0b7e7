#include "s3/store_in_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "storage/s3.h"
#include "storage/s3_xml.h"

namespace sherd::testing {
namespace {

constexpr std::string_view kEndpoint = "http://store";
constexpr std::string_view kBucket = "/bucket";

std::string decoded(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return plain;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::shared_ptr<const std::string> shared(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

}  // namespace

struct StoreInMemory::Call {
  const HttpRequest& request;
  std::string key;
  std::map<std::string, std::string> query = {};
  std::map<std::string, std::string> headers = {};

  explicit Call(const HttpRequest& sent) : request(sent) {
    const std::string_view url = std::string_view(sent.url).substr(kEndpoint.size());
    const size_t mark = std::min(url.find('?'), url.size());
    const std::string path = decoded(url.substr(0, mark));
    if (!path.starts_with(kBucket)) throw std::logic_error("another bucket: " + path);
    key = path.substr(std::min(kBucket.size() + 1, path.size()));
    for (size_t at = mark; at < url.size();) {
      const size_t end = std::min(url.find('&', at + 1), url.size());
      const std::string_view pair = url.substr(at + 1, end - at - 1);
      const size_t equal = std::min(pair.find('='), pair.size());
      query[decoded(pair.substr(0, equal))] = decoded(pair.substr(std::min(equal + 1, pair.size())));
      at = end;
    }
    for (const auto& [name, value] : sent.headers) headers[name] = value;
  }
  bool asks(const std::string& name) const { return query.contains(name); }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  std::string draft() const { return header("x-amz-meta-sherd-draft"); }
};

StoreInMemory::StoreInMemory(const StoreInMemory& other) : Http() {
  const std::lock_guard lock(other.mutex_);
  objects_ = other.objects_;
  uploads_ = other.uploads_;
  number_ = other.number_;
}

HttpAnswer StoreInMemory::send(const HttpRequest& request) {
  const Call call(request);
  const std::lock_guard lock(mutex_);
  if (request.method == "DELETE") return remove(call);
  if (request.method == "POST" || call.asks("partNumber")) return upload(call);
  if (request.method == "PUT") return write(call);
  return call.asks("list-type") ? list(call) : read(call);
}

HttpAnswer StoreInMemory::list(const Call& call) const {
  const std::string prefix = call.query.at("prefix");
  const bool has_folders = call.asks("delimiter");
  const size_t most = call.asks("max-keys") ? std::stoul(call.query.at("max-keys")) : objects_.size();
  HttpAnswer answer{.status = 200};
  std::set<std::string> folders;
  size_t count = 0;
  for (auto object = objects_.lower_bound(prefix); object != objects_.end() && count < most; ++object) {
    const std::string& key = object->first;
    if (!key.starts_with(prefix)) break;
    const size_t slash = has_folders ? key.find('/', prefix.size()) : std::string::npos;
    if (slash != std::string::npos) {
      count += folders.insert(key.substr(0, slash + 1)).second ? 1 : 0;
      continue;
    }
    answer.body += fmt::format("<Contents><Key>{}</Key></Contents>", xml_escape(key));
    ++count;
  }
  for (const std::string& folder : folders) {
    answer.body += fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", xml_escape(folder));
  }
  return answer;
}

HttpAnswer StoreInMemory::read(const Call& call) const {
  const auto found = objects_.find(call.key);
  if (found == objects_.end()) return {.status = 404};
  const Object& object = found->second;
  HttpAnswer answer{.status = 200};
  answer.headers = {{"content-length", fmt::to_string(object.bytes->size())},
                    {"etag", object.etag},
                    {"x-amz-meta-sherd-draft", object.draft}};
  if (call.request.method == "HEAD") return answer;
  if (const std::string etag = call.header("if-match"); !etag.empty() && etag != object.etag) return {.status = 412};
  std::string_view bytes = *object.bytes;
  if (const std::string range = call.header("range"); !range.empty()) {
    const size_t begin = std::stoul(range.substr(range.find('=') + 1));
    const size_t end = std::stoul(range.substr(range.find('-') + 1)) + 1;
    if (begin >= bytes.size()) return {.status = 416};
    bytes = bytes.substr(begin, end - begin);
    answer.status = 206;
  }
  if (call.request.into.empty()) {
    answer.body = bytes;
  } else {
    answer.into_size = std::min(bytes.size(), call.request.into.size());
    std::memcpy(call.request.into.data(), bytes.data(), answer.into_size);
  }
  return answer;
}

HttpAnswer StoreInMemory::put(const std::string& key, Object object) {
  object.etag = fmt::to_string(++number_);
  objects_[key] = std::move(object);
  return {.status = 200, .headers = {{"etag", objects_[key].etag}}};
}

HttpAnswer StoreInMemory::write(const Call& call) {
  const std::string source = decoded(call.header("x-amz-copy-source"));
  if (source.empty()) return put(call.key, {shared(text_of(call.request.body)), call.draft()});
  const auto found = objects_.find(source.substr(kBucket.size() + 1));
  return found == objects_.end() ? HttpAnswer{.status = 404} : put(call.key, found->second);
}

HttpAnswer StoreInMemory::upload(const Call& call) {
  if (call.asks("uploads")) {
    const std::string id = fmt::to_string(++number_);
    uploads_[id].draft = call.draft();
    return {.status = 200, .body = fmt::format("<UploadId>{}</UploadId>", id)};
  }
  const auto found = uploads_.find(call.query.at("uploadId"));
  if (found == uploads_.end()) return {.status = 404};
  if (call.asks("partNumber")) {
    found->second.parts[std::stoi(call.query.at("partNumber"))] = text_of(call.request.body);
    return {.status = 200, .headers = {{"etag", "part"}}};
  }
  std::string bytes;
  for (const auto& [number, part] : found->second.parts) bytes += part;
  const std::string draft = found->second.draft;
  uploads_.erase(found);
  return put(call.key, {shared(std::move(bytes)), draft});
}

HttpAnswer StoreInMemory::remove(const Call& call) {
  if (call.asks("uploadId")) {
    uploads_.erase(call.query.at("uploadId"));
  } else {
    objects_.erase(call.key);
  }
  return {.status = 204};
}

std::shared_ptr<Storage> storage_in(const std::shared_ptr<Http>& store) {
  return s3_storage({.bucket = std::string(kBucket.substr(1)),
                     .endpoint = std::string(kEndpoint),
                     .region = "nowhere",
                     .access_key = "key",
                     .secret_key = "secret",
                     .retries = 0},
                    store);
}

}  // namespace sherd::testing
