#pragma once
// A group of ranks that call collectives together, one c10d::Backend per device type behind it.

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
}

namespace sherd {

namespace detail {
class GroupState;
}

/// A handle: copying it is cheap and copies name the same group. Used by one thread of its rank at a time.
///
/// Its backends are made when a collective first needs them, by the group's members alone: ranks outside the group
/// take no part. Except among threads this waits for all members: where the first call is a message between two of
/// them, the others must call something, too, a barrier say. A group of one rank never communicates.
class Group {
 public:
  explicit Group(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}

  /// The same ranks, with connections of their own: for calls from another thread while this group's go on, one `lane`
  /// for each such thread. A group made of a backend that a program had is returned itself.
  Group in_background(const std::string& lane = "background") const;
  /// Whether that is a group of its own. A group of a backend that was given has no other: two threads would mix their
  /// calls on it.
  bool has_background() const;

  /// Wraps a backend that a program already has. `ranks` are the world's ranks of its members, in the backend's order.
  static Group from_backend(c10::intrusive_ptr<c10d::Backend> backend, std::vector<int64_t> ranks,
                            c10::DeviceType device = c10::DeviceType::CPU);

  /// This rank's place in the group, and how many there are.
  int rank() const;
  int size() const;
  /// The world's ranks of the members, in the group's order.
  const std::vector<int64_t>& ranks() const;
  /// How the group calls itself in errors: "ranks 0-3".
  const std::string& name() const;

  /// The backend for tensors of a device type, for users of c10d; made on the first call, which every member makes.
  /// Throws c10::DistBackendError where none is configured for that device.
  c10::intrusive_ptr<c10d::Backend> backend(c10::DeviceType device) const;

  /// The same members and the same backends.
  bool operator==(const Group& other) const { return state_ == other.state_; }

  detail::GroupState& state() const { return *state_; }

 private:
  std::shared_ptr<detail::GroupState> state_;
};

}  // namespace sherd
