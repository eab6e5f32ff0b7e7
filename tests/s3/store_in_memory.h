#pragma once
// An object store in the memory of a test, for those that ask thousands of times. What a store says on the network is
// tested with the server of server.py.

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sherd/storage.h"
#include "storage/http.h"

namespace sherd::testing {

class StoreInMemory final : public Http {
 public:
  StoreInMemory() = default;
  /// What is there at this moment.
  StoreInMemory(const StoreInMemory& other);

  HttpAnswer send(const HttpRequest& request) override;

 private:
  struct Object {
    std::shared_ptr<const std::string> bytes = {};  // copies of the store share them
    std::string draft = {};
    std::string etag = {};
  };
  struct Upload {
    std::string draft = {};
    std::map<int, std::string> parts = {};
  };
  struct Call;
  HttpAnswer list(const Call& call) const;
  HttpAnswer read(const Call& call) const;
  HttpAnswer write(const Call& call);
  HttpAnswer upload(const Call& call);
  HttpAnswer remove(const Call& call);
  HttpAnswer put(const std::string& key, Object object);

  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::map<std::string, Upload> uploads_;
  int number_ = 0;
};

/// A client of such a store.
std::shared_ptr<Storage> storage_in(const std::shared_ptr<Http>& store);

}  // namespace sherd::testing
