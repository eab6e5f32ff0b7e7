#pragma once
// What a CommDebugMode keeps.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sherd/comm_debug.h"
#include "sherd/explain.h"
#include "sherd/mesh.h"

namespace sherd::detail {

inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// An operator that moved its operands, as the planner sees it.
struct MovingCall {
  struct Operand {
    Placements to = {};          // that the operator ran with
    std::string parameter = {};  // empty where it is none
    bool transposed = false;     // the operand is the parameter's t()
    bool gathered = false;       // a parameter that is brought together for use
  };
  OperatorCall call;
  Mesh mesh;
  std::vector<Operand> operands;  // one for each of call.operands
  bool no_rule = false;           // it runs whole on every rank
};
using MovingCallPtr = std::shared_ptr<const MovingCall>;

/// Written by the rank's thread and by those that communicate for it.
struct DebugLog {
  explicit DebugLog(const CommDebugOptions& o);

  /// The number of the record; nothing where the log has ended.
  std::optional<size_t> add(CommRecord record, MovingCallPtr call);
  void finish(size_t record, int64_t end_ns);
  void add(OperatorRecord record);

  struct Entry {
    CommRecord record;
    MovingCallPtr call;
  };
  /// In the order in which they began.
  std::vector<Entry> entries() const;
  std::vector<OperatorRecord> all_operators() const;
  /// From now on nothing is added.
  void end();

  const CommDebugOptions options;
  const int rank;
  const int64_t start_ns = steady_ns();
  const int64_t epoch_ns;  // the time of day at start_ns

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<OperatorRecord> operators_;
  bool ended_ = false;
};

}  // namespace sherd::detail
