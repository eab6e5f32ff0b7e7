#pragma once
// The transport of ranks on several hosts of which some share one: what can stay inside a host goes through the host's
// own transport, and what must leave it crosses once. CPU tensors.

#include <mutex>
#include <string>
#include <vector>

#include "comm/call_shape.h"
#include "comm/host.h"
#include "comm/host_talk.h"
#include "comm/sync_backend.h"

namespace sherd::detail {

/// What it is made of.
struct HierarchicalParts {
  Hosts hosts;
  std::vector<int64_t> ranks;                 // the world's numbers of the members, for messages
  c10::intrusive_ptr<c10d::Backend> inside;   // the members on this host, in their order; every dtype and reduction
  c10::intrusive_ptr<c10d::Backend> between;  // all members; only its messages are used
};

/// Every call begins with a meeting, in which the ranks learn whether their calls fit together. The numbers of a
/// reduction are combined inside each host first and then in the order of the hosts, each of them by one rank, so that
/// all get the same bits; sixteen-bit floats are combined in 32 bits and rounded once. Calls complete before they
/// return, but messages to other hosts when they are waited for.
class HierarchicalBackend final : public SyncBackend {
 public:
  HierarchicalBackend(int rank, HierarchicalParts parts);

  const std::string getBackendName() const override { return "hierarchical"; }
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  void abort() override;
  void shutdown() override;

 protected:
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override;
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;

 private:
  /// Ranks of another host, one for each rank of this host that has something to do with it, in their order.
  using Wave = std::vector<int>;

  void move(const Call& call);
  bool meet(const Call& call);
  std::vector<CallShape> descriptions_of_all(const Call& call);
  at::Tensor rows_of_all(const at::Tensor& mine);

  void run_all_gather(const Call& call);
  void run_gather(const Call& call);
  void run_scatter(const Call& call);
  void run_all_to_all(const Call& call);
  void run_broadcast(const Call& call);
  void run_reduce_scatter(const Call& call);
  void run_all_reduce(const Call& call);
  void run_all_reduce_small(const Call& call);
  void run_reduce(const Call& call);

  bool is_beside(int member) const { return parts_.hosts.host_of[static_cast<size_t>(member)] == host_; }
  int place_of(int member) const { return parts_.hosts.place_of[static_cast<size_t>(member)]; }
  /// The rank of another host that deals with what concerns `member` there.
  int partner(size_t other_host, int member) const;
  std::vector<Wave> waves() const;
  InsideHost inside() const;
  c10d::Backend& between() const;
  /// Hosts begin with different ones, so that they do not all talk to one host at once.
  template <class F>
  void for_each_other_host(F&& f) const {
    const size_t hosts = parts_.hosts.size();
    for (size_t i = 1; i < hosts; ++i) f((static_cast<size_t>(host_) + i) % hosts);
  }

  /// A call under way: another thread that closes the backend meanwhile leaves the connections to it.
  class CallScope {
   public:
    CallScope(HierarchicalBackend& backend, const char* operation);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    HierarchicalBackend& backend_;
  };
  void let_go();

  HierarchicalParts parts_;
  int host_;
  std::mutex mutex_;  // of what follows, and of parts_.between being let go
  bool closed_ = false;
  int under_way_ = 0;
};

}  // namespace sherd::detail
