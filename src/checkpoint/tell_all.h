#pragma once
// Steps of a save or a load that every rank takes or none does.

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sherd/group.h"

namespace sherd::detail {

/// What `say` gives on each rank. Where it throws on any, all throw: c10::ValueError for a fault of the arguments,
/// c10::Error for one of the files. A group of one rank throws what its rank said, without the frame around it.
std::vector<std::string> tell_all(const char* operation, const Group& group, const std::function<std::string()>& say);

/// Whether the others still wait for what this rank is at: not where one of them failed or is gone.
class StillWanted {
 public:
  /// Throws where they do not. For work that takes long, now and then, from any thread.
  void check() const;
  /// What this rank is at, for those that wait: "writing runs/ck/__0_0.distcp".
  void at(std::string what) const;

 private:
  friend class LongStep;
  std::string what() const;

  mutable std::mutex mutex_;
  mutable std::string what_ = "at work";
  std::atomic<bool> given_up_{false};
  mutable std::atomic<bool> stopped_{false};  // by check
};

/// The same for work that may take longer than ranks wait for each other. A rank that is at it for a quarter of the
/// group's timeout tells the others so, and again in each quarter, by a thread of its own that uses the group
/// meanwhile; the others are told how it ended when all have ended. Where all are done before, it costs what tell_all
/// does. A rank that has nothing to do gives no `work`. One that is at it for longer than the timeout says so in the
/// log. Where `give_up_after` has passed, all throw c10::DistBackendError, naming it; it does so itself when its work
/// is over.
std::vector<std::string> work_and_tell_all(const char* operation, const Group& group,
                                           const std::function<std::string(const StillWanted&)>& work,
                                           std::optional<std::chrono::milliseconds> give_up_after = {});

/// The same for what a rank does by itself.
std::string alone(const std::function<std::string()>& say);

}  // namespace sherd::detail
