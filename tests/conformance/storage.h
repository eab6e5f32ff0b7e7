#pragma once
// The contract of a storage driver, as tests. A driver takes all of them with one line:
//
//   INSTANTIATE_STORAGE_TESTS(Memory, (StorageDriver{.make = [] { return memory_storage(); }}));

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sherd/storage.h"

namespace sherd::testing {

struct StorageDriver {
  /// What two processes would have: two calls with the same root see the same files.
  std::function<std::shared_ptr<Storage>()> make;
  /// A folder that is empty, and gone after the test. Called once for each test.
  std::function<std::shared_ptr<const std::string>()> root = [] { return std::make_shared<const std::string>("root"); };
  /// Files have holes that take no room, and may be larger than memory.
  bool sparse = true;
  /// A file that is open is read to its end when another has taken its place; otherwise reading it throws.
  bool keeps_open_files = true;
  /// Why this driver cannot be tested here; empty where it can.
  std::function<std::string()> missing = [] { return std::string(); };
};

class StorageTest : public ::testing::TestWithParam<StorageDriver> {
 protected:
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty()) GTEST_SKIP() << missing;
    root_ = GetParam().root();
    storage_ = GetParam().make();
  }

  /// In the test's own folder.
  std::string at(const std::string& name) const { return *root_ + "/" + name; }

  std::shared_ptr<const std::string> root_;
  std::shared_ptr<Storage> storage_;
};

/// What a file holds.
std::string read_all(const Storage& storage, const std::string& path);
/// The whole text as one file of a draft, finished.
void write_all(Draft& draft, const std::string& name, const std::string& text);
/// A committed folder of one file "last" that holds the text, and "data-<id>" that holds it ten times.
void save(Storage& storage, const std::string& folder, const std::string& id, const std::string& text);
/// Bytes that tell where they are.
std::string pattern(size_t size, size_t seed = 0);

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

}  // namespace sherd::testing

#define INSTANTIATE_STORAGE_TESTS(Name, driver) INSTANTIATE_TEST_SUITE_P(Name, StorageTest, ::testing::Values(driver))
