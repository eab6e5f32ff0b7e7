#pragma once
// The two ways in which a rank on one of several hosts talks: with the ranks beside it, and with those of other hosts.

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "comm/arguments.h"
#include "comm/as_bytes.h"
#include "comm/sync_backend.h"

namespace sherd::detail {

/// What a message is for; it is told apart from the user's messages, too.
enum class HostTag : int {
  meeting = kMaxTag + 1,
  data,
  result,
};

/// Collectives of the ranks on this host; each is over when it returns.
class InsideHost {
 public:
  explicit InsideHost(c10d::Backend& backend) : backend_(backend) {}

  void all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
    std::vector<std::vector<at::Tensor>> lists{outputs};
    std::vector<at::Tensor> inputs{input};
    backend_.allgather(lists, inputs, {})->wait();
  }
  void gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root) {
    std::vector<std::vector<at::Tensor>> lists{outputs};
    std::vector<at::Tensor> inputs{input};
    c10d::GatherOptions options;
    options.rootRank = root;
    backend_.gather(lists, inputs, options)->wait();
  }
  void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
    std::vector<std::vector<at::Tensor>> lists{inputs};
    std::vector<at::Tensor> outputs{output};
    c10d::ScatterOptions options;
    options.rootRank = root;
    backend_.scatter(outputs, lists, options)->wait();
  }
  void all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs) {
    backend_.alltoall(outputs, inputs, {})->wait();
  }
  void broadcast(const at::Tensor& tensor, int root) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    backend_.broadcast(tensors, options)->wait();
  }
  void reduce(const at::Tensor& tensor, ReduceOp op, int root) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.reduceOp = to_c10d(op);
    options.rootRank = root;
    backend_.reduce(tensors, options)->wait();
  }
  void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, ReduceOp op) {
    std::vector<at::Tensor> outputs{output};
    std::vector<std::vector<at::Tensor>> lists{inputs};
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    backend_.reduce_scatter(outputs, lists, options)->wait();
  }

 private:
  c10d::Backend& backend_;
};

/// Messages to and from other hosts, under way until they are waited for. Both sides leave out those without
/// elements.
class HostMessages {
 public:
  HostMessages(c10d::Backend& backend, HostTag tag) : backend_(backend), tag_(static_cast<int>(tag)) {}

  void send(const at::Tensor& tensor, int to) {
    if (tensor.numel() == 0) return;
    std::vector<at::Tensor> bytes{as_bytes(tensor)};
    sends_.push_back(backend_.send(bytes, to, tag_));
  }
  /// Returns the number of it, for wait_for().
  size_t receive(const at::Tensor& tensor, int from) {
    receives_.emplace_back();
    if (tensor.numel() > 0) {
      std::vector<at::Tensor> bytes{as_bytes(tensor)};
      receives_.back() = backend_.recv(bytes, from, tag_);
    }
    return receives_.size() - 1;
  }
  void wait_for(size_t number) {
    if (const auto work = std::exchange(receives_[number], nullptr)) work->wait();
  }
  void wait_for_receives() {
    for (size_t i = 0; i < receives_.size(); ++i) wait_for(i);
  }
  void wait() {
    wait_for_receives();
    for (const auto& work : sends_) work->wait();
    sends_.clear();
  }

 private:
  c10d::Backend& backend_;
  int tag_;
  std::vector<c10::intrusive_ptr<c10d::Work>> sends_;
  std::vector<c10::intrusive_ptr<c10d::Work>> receives_;
};

}  // namespace sherd::detail
