#pragma once
// A disk that a test can stop after any operation, and that then has what POSIX promises and not a byte more: the data
// of files and the names in folders that were synced, and of the rest what the test chooses.

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "storage/posix.h"

namespace sherd::testing {

/// Thrown by the operation at which the machine stops.
struct PowerLoss {};

/// What of the changes since the last sync is there after it: none, all (as when only the process ended), or for each
/// file and folder some that came before others.
struct Survivors {
  enum Kind { none, all, some } kind = none;
  unsigned seed = 0;
};

class SimulatedDisk final : public Posix {
 public:
  explicit SimulatedDisk(bool can_exchange = true) : can_exchange_(can_exchange) {}

  /// The operation after the next `count` ones throws PowerLoss, and nothing happens after it.
  void stop_after(int64_t count) { stop_ = operations_ + count; }
  int64_t operations() const { return operations_; }
  /// What a machine that starts again finds.
  std::shared_ptr<SimulatedDisk> after_restart(Survivors survivors) const;

  int open(const std::string& path, int flags) override;
  void close(int file) override;
  int64_t size(int file) override;
  ssize_t pread(int file, std::span<std::byte> into, int64_t offset) override;
  int start_reading(int /*file*/, int64_t /*offset*/, int64_t /*size*/) override { return 0; }
  ssize_t pwrite(int file, std::span<const std::byte> bytes, int64_t offset) override;
  int reserve(int file, int64_t size) override;
  int truncate(int file, int64_t size) override;
  int start_writing(int file) override;
  int fsync(int file) override;
  int kind(const std::string& path, PathKind& kind) override;
  int list(const std::string& folder, std::vector<FolderEntry>& entries) override;
  int read_link(const std::string& path, std::string& target) override;
  int mkdir(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int exchange(const std::string& one, const std::string& other) override;
  int unlink(const std::string& path) override;
  int rmdir(const std::string& path) override;

 private:
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePointer>;
  struct Node {
    bool is_folder = false;
    std::string data = {};
    std::string synced_data = {};
    Names names = {};
    Names synced_names = {};
    std::vector<Names> changes =
        {};  // since the last sync; a null pointer removes a name. Each is whole or not at all.
  };

  // False when the machine has stopped; throws when it stops.
  bool goes_on();
  NodePointer find(const std::string& path) const;
  void change(const std::string& parent, const Names& names);
  // By their paths. In one folder it is one step; of two folders each keeps its half by itself.
  void move(const Names& paths);
  static NodePointer copy(const NodePointer& node, Survivors survivors, std::mt19937& random);

  NodePointer root_ = std::make_shared<Node>(Node{.is_folder = true});
  std::map<int, NodePointer> open_;
  int next_file_ = 100;
  bool can_exchange_;
  int64_t operations_ = 0;
  int64_t stop_ = -1;
  bool stopped_ = false;
};

}  // namespace sherd::testing
