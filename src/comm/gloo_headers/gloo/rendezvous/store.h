#pragma once
#include <gloo/transport/device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gloo::rendezvous {
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
  virtual bool has_v2_support() { return false; }
  virtual std::vector<std::vector<char>> multi_get(const std::vector<std::string>&) { return {}; }
  virtual void multi_set(const std::vector<std::string>&, const std::vector<std::vector<char>>&) {}
  virtual void append(const std::string&, const std::vector<char>&) {}
  virtual int64_t add(const std::string&, int64_t) { return 0; }
};
}  // namespace gloo::rendezvous
