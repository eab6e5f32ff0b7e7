// HTTP by libcurl. It is loaded when it is first asked for: most programs never talk to an object store, and need
// neither the library nor the time to load it with all that it needs.

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "sherd/error.h"
#include "storage/http.h"

namespace sherd {
namespace {

struct Library {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) init;
  decltype(&::curl_easy_setopt) set;
  decltype(&::curl_easy_perform) perform;
  decltype(&::curl_easy_getinfo) info;
  decltype(&::curl_easy_reset) reset;
  decltype(&::curl_easy_cleanup) cleanup;
  decltype(&::curl_easy_strerror) strerror;
  decltype(&::curl_slist_append) append;
  decltype(&::curl_slist_free_all) free_list;
};

const Library& library() {
  static const Library loaded = [] {
    void* file = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
      if (file == nullptr) file = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (file == nullptr) {
      throw std::runtime_error(ErrorText("s3", "libcurl cannot be loaded")
                                   .fact("reason", ::dlerror())
                                   .help("apt-get install libcurl4, or what your system calls it"));
    }
    Library result{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, name));
      if (function == nullptr) throw std::runtime_error(ErrorText("s3", "libcurl lacks a function").fact("name", name));
    };
    find(result.global_init, "curl_global_init");
    find(result.init, "curl_easy_init");
    find(result.set, "curl_easy_setopt");
    find(result.perform, "curl_easy_perform");
    find(result.info, "curl_easy_getinfo");
    find(result.reset, "curl_easy_reset");
    find(result.cleanup, "curl_easy_cleanup");
    find(result.strerror, "curl_easy_strerror");
    find(result.append, "curl_slist_append");
    find(result.free_list, "curl_slist_free_all");
    result.global_init(CURL_GLOBAL_DEFAULT);
    return result;
  }();
  return loaded;
}

// One request under way.
struct Transfer {
  CURL* handle;
  std::span<const std::byte> left;  // of the request's body
  std::span<std::byte> into;
  HttpAnswer answer = {};
};

size_t on_send(char* buffer, size_t /*one*/, size_t size, void* data) {
  auto& transfer = *static_cast<Transfer*>(data);
  const size_t count = std::min(size, transfer.left.size());
  std::memcpy(buffer, transfer.left.data(), count);
  transfer.left = transfer.left.subspan(count);
  return count;
}

size_t on_receive(char* bytes, size_t /*one*/, size_t size, void* data) {
  auto& transfer = *static_cast<Transfer*>(data);
  long status = 0;
  library().info(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  HttpAnswer& answer = transfer.answer;
  if (transfer.into.empty() || status / 100 != 2) {
    answer.body.append(bytes, size);
  } else {
    const size_t count = std::min(size, transfer.into.size() - answer.into_size);
    std::memcpy(transfer.into.data() + answer.into_size, bytes, count);
    answer.into_size += count;
  }
  return size;
}

size_t on_header(char* bytes, size_t /*one*/, size_t size, void* data) {
  auto& headers = static_cast<Transfer*>(data)->answer.headers;
  const std::string_view line(bytes, size);
  if (line.starts_with("HTTP/")) headers.clear();  // of an answer that only says to go on
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t begin = line.find_first_not_of(' ', colon + 1);
  const size_t end = line.find_last_not_of("\r\n ");
  headers[name] = begin > end ? "" : std::string(line.substr(begin, end - begin + 1));
  return size;
}

class CurlHttp final : public Http {
 public:
  ~CurlHttp() override {
    for (CURL* handle : idle_) library().cleanup(handle);
  }

  HttpAnswer send(const HttpRequest& request) override {
    const Library& curl = library();
    Transfer transfer{take(), request.body, request.into};
    CURL* handle = transfer.handle;
    curl_slist* headers = curl.append(nullptr, "Expect:");  // bodies are sent at once, without asking
    for (const auto& [name, value] : request.headers) headers = curl.append(headers, (name + ": " + value).c_str());
    curl.set(handle, CURLOPT_URL, request.url.c_str());
    curl.set(handle, CURLOPT_HTTPHEADER, headers);
    curl.set(handle, CURLOPT_NOSIGNAL, 1L);
    curl.set(handle, CURLOPT_CONNECTTIMEOUT, 10L);
    curl.set(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);  // a byte a second for half a minute: it hangs
    curl.set(handle, CURLOPT_LOW_SPEED_TIME, 30L);
    curl.set(handle, CURLOPT_PATH_AS_IS, 1L);
    curl.set(handle, CURLOPT_WRITEFUNCTION, on_receive);
    curl.set(handle, CURLOPT_WRITEDATA, &transfer);
    curl.set(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl.set(handle, CURLOPT_HEADERDATA, &transfer);
    if (request.method == "HEAD") {
      curl.set(handle, CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      curl.set(handle, CURLOPT_UPLOAD, 1L);
      curl.set(handle, CURLOPT_READFUNCTION, on_send);
      curl.set(handle, CURLOPT_READDATA, &transfer);
      curl.set(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    }
    if (request.method != "HEAD") curl.set(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());

    const CURLcode code = curl.perform(handle);
    long status = 0;
    curl.info(handle, CURLINFO_RESPONSE_CODE, &status);
    transfer.answer.status = static_cast<int>(status);
    if (code != CURLE_OK) transfer.answer.failure = curl.strerror(code);
    curl.free_list(headers);
    give_back(handle);
    return std::move(transfer.answer);
  }

 private:
  CURL* take() {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return library().init();
    CURL* handle = idle_.back();
    idle_.pop_back();
    return handle;
  }

  void give_back(CURL* handle) {
    library().reset(handle);  // keeps its connections
    const std::scoped_lock lock(mutex_);
    idle_.push_back(handle);
  }

  std::mutex mutex_;
  std::vector<CURL*> idle_;
};

}  // namespace

std::shared_ptr<Http> make_http() {
  library();
  return std::make_shared<CurlHttp>();
}

}  // namespace sherd
