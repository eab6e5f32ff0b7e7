#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "comm/backend_config.h"
#include "comm/link.h"

namespace sherd::detail {

/// The one copy of a text, which is never freed: names of mesh axes and of ranges for profilers, few and short.
const std::string* lasting_label(const std::string& text);

/// The lane of what a world's background thread does.
inline constexpr const char* kBackgroundLane = "background";

/// What a Group points at: its members, and the backends made for it so far.
class GroupState {
 public:
  /// Groups of the same ranks in another `lane` talk past each other.
  GroupState(std::shared_ptr<const Link> link, std::vector<int64_t> ranks, BackendConfig config, std::string lane = {});

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  const Link& link() const { return *link_; }

  /// The axis of the mesh that this group was last asked of; empty where it is no mesh's. For reports: one group may
  /// be an axis of several meshes, under several names.
  const std::string& axis_label() const { return *axis_label_.load(std::memory_order_relaxed); }
  /// `label` lives for ever: see lasting_label.
  void set_axis_label(const std::string* label) { axis_label_.store(label, std::memory_order_relaxed); }

  /// The backend for tensors of a device, made on the first call; `operation` starts the text of an error.
  c10::intrusive_ptr<c10d::Backend> transport(c10::DeviceType device, const char* operation);
  /// The same for users of c10d: a RecordingBackend around it where calls are compared.
  c10::intrusive_ptr<c10d::Backend> backend(c10::DeviceType device);
  void set_backend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend);
  bool has_transport(c10::DeviceType device) const {
    const std::lock_guard lock(mutex_);
    return transports_.count(device) > 0;
  }
  bool serves(c10::DeviceType device) const;

  /// Messages of this rank to itself, which no transport need carry. The k-th turn gets the k-th message.
  void send_to_self(const at::Tensor& tensor, int tag);
  uint64_t take_turn(int tag) { return own_mail_[tag].turns++; }
  void receive_from_self(const at::Tensor& tensor, int tag, uint64_t turn);

  /// False where it has no other backends than those it was made from.
  bool has_background() const { return !config_.text().empty(); }
  /// A group of the same ranks for calls that are made while this one's are; made on the first call. This group itself
  /// where there can be no other.
  static std::shared_ptr<GroupState> in_background(const std::shared_ptr<GroupState>& group, const std::string& lane);

  /// Lets go of the backends: what the other ranks wait for on them ends with an error, or, in good order, with what
  /// this rank has sent. Later calls fail, saying `reason`. A backend with calls under way stays until they end.
  void close(const char* reason, bool in_good_order = false);
  /// The same for the group beside it in this lane, where there is one.
  void close_lane(const std::string& lane, const char* reason);
  /// Tells the other members that this rank makes no more calls, where the backends can.
  void end();
  /// Kept by calls under way.
  std::shared_ptr<const void> under_way() const { return under_way_; }

  /// Closes the group and throws the c10::DistBackendError that says what became of `operation`. Called in a catch
  /// block.
  [[noreturn]] void rethrow(const char* operation);

 private:
  struct Mailbox {
    uint64_t sent = 0;
    uint64_t turns = 0;
    std::map<uint64_t, at::Tensor> waiting;
  };
  using Backends = std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>>;
  c10::intrusive_ptr<c10d::Backend> make(c10::DeviceType device, const std::string& backend,
                                         const char* operation) const;
  Backends transports() const;
  /// Under mutex_.
  void check_open(const char* operation) const;

  std::shared_ptr<const Link> link_;
  std::vector<int64_t> ranks_;
  int rank_ = -1;
  BackendConfig config_;
  std::string lane_;
  std::mutex background_mutex_;  // the thread that uses it asks for it, this rank's own closes it
  std::map<std::string, std::shared_ptr<GroupState>> in_background_;  // by lane
  std::string name_;
  std::atomic<const std::string*> axis_label_{lasting_label("")};
  std::map<int, Mailbox> own_mail_;  // by tag
  std::shared_ptr<const void> under_way_ = std::make_shared<char>();
  mutable std::mutex mutex_;  // of what follows: the thread of a lane makes its calls, and this rank's own closes it
  Backends transports_;
  Backends checked_;              // the same, wrapped
  const char* closed_ = nullptr;  // why
};

}  // namespace sherd::detail
