#pragma once
// Messages from a stage of a pipeline to one next to it.

#include <ATen/core/Tensor.h>

#include <deque>
#include <string>

#include "sherd/collectives.h"
#include "sherd/group.h"

namespace sherd::detail {

/// One direction, with connections of its own: a transport that works through its calls in order never has a message
/// one way wait for one the other way. Sends are not waited for until finish(): a stage goes on at once.
class Channel {
 public:
  /// Messages go to place `to` and come from place `from` of the group. Every rank of the group makes one of each.
  Channel(const Group& group, const std::string& name, c10::Device device, int to, int from);

  void give(const at::Tensor& part);
  void take(const at::Tensor& part);
  void give_text(const std::string& text);
  std::string take_text();
  void finish();

 private:
  struct Sent {
    at::Tensor part;  // must live until it is there
    Work work;
  };
  Group group_;
  c10::Device device_;
  int to_, from_;
  std::deque<Sent> sent_;
};

}  // namespace sherd::detail
