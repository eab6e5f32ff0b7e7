#pragma once
// Who watches what this thread communicates, and what the thread says of why it does. Where nobody watches, each of
// these costs one look at a thread-local pointer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "sherd/group.h"

namespace sherd::detail {

/// A collective that begins.
struct ObservedCall {
  Collective kind = Collective::barrier;
  std::string group;  // "ranks 0-3"
  std::string axis;   // of the mesh that the group was last asked of; empty where no mesh has it
  std::string dtype;
  int64_t numel = 0;  // of this rank's input
  int64_t bytes = 0;  // that this rank receives from others
};

/// Why something is communicated where no operator does it by itself.
struct Cause {
  const char* what = "";                         // "gather on use"
  bool backward = false;                         // it belongs to the backward pass, whenever it comes
  std::string who = {};                          // the parameter or module that asked for it
  std::vector<const c10::StorageImpl*> of = {};  // the parameters that it is about, by the memory of their parts
};

/// Called by the thread that it watches, and by threads that work for it in the background.
class CommObserver : public std::enable_shared_from_this<CommObserver> {
 public:
  virtual ~CommObserver() = default;
  /// A number for end().
  virtual size_t begin(ObservedCall call) = 0;
  virtual void end(size_t call) = 0;
  virtual void enter(const Cause& cause) = 0;
  virtual void leave() = 0;
  /// Watches a thread that does something for this one, for the reason that there is now.
  virtual std::shared_ptr<CommObserver> in_background() = 0;
};

/// Null where nobody watches.
CommObserver* comm_observer();
/// Returns the one before.
CommObserver* set_comm_observer(CommObserver* observer);

/// What reports call the axes that a group lies along, where it is of several axes of a mesh.
void label_group(const Group& group, const std::string& axes);

/// From the beginning of a collective to its end.
class CommSpan {
 public:
  CommSpan(std::shared_ptr<CommObserver> observer, ObservedCall call)
      : observer_(std::move(observer)), call_(observer_->begin(std::move(call))) {}
  ~CommSpan() { observer_->end(call_); }
  CommSpan(const CommSpan&) = delete;
  CommSpan& operator=(const CommSpan&) = delete;

 private:
  std::shared_ptr<CommObserver> observer_;
  size_t call_;
};

/// Says why this thread communicates while it lives. Inside another cause it adds nothing.
class CauseScope {
 public:
  explicit CauseScope(const char* what) : CauseScope(what, [](Cause&) {}) {}
  /// `tell` fills in the rest, where somebody watches.
  template <class Tell>
  CauseScope(const char* what, const Tell& tell) : observer_(comm_observer()) {
    if (observer_ == nullptr) return;
    Cause cause{.what = what};
    tell(cause);
    observer_->enter(cause);
  }
  ~CauseScope() {
    if (observer_ != nullptr && observer_ == comm_observer()) observer_->leave();
  }
  CauseScope(const CauseScope&) = delete;
  CauseScope& operator=(const CauseScope&) = delete;

 private:
  CommObserver* observer_;
};

}  // namespace sherd::detail
