#pragma once
// What carries requests between ranks and replies back. There is one kind, TensorPipe; whether libtorch has it is
// decided by which file is compiled (tensorpipe.cpp or no_tensorpipe.cpp).

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/link.h"
#include "comm/rpc_message.h"

namespace sherd::detail {

/// The rank that was asked is gone, or did not answer in time.
struct NoAnswer : std::runtime_error {
  NoAnswer(const std::string& cause, bool is_late) : std::runtime_error(cause), late(is_late) {}
  bool late;
};

/// A reply under way.
class PendingReply {
 public:
  virtual ~PendingReply() = default;
  /// Throws NoAnswer.
  virtual RpcMessage wait() = 0;
};

/// Another rank could not start its wire, and says why: there is nothing to say here.
struct WireAbandoned : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct WireOptions {
  std::shared_ptr<const Link> link;
  std::string key;                 // the ranks meet under it in the store; used once
  std::vector<std::string> names;  // by rank
  int threads = 1;                 // that answer
  std::chrono::milliseconds timeout{0};
};

/// Called by several threads of the wire. Throws nothing.
using Answer = std::function<RpcMessage(const RpcMessage&)>;

/// All methods may be called from any thread, but for the end.
class RpcWire {
 public:
  virtual ~RpcWire() = default;  // ends at once; what is under way gets no answer

  virtual std::shared_ptr<PendingReply> ask(int rank, RpcMessage request, std::chrono::milliseconds timeout) = 0;
  /// Returns when this rank's requests have been answered. From now on other ranks may end without a word.
  virtual void finish() = 0;
  /// Returns when what this rank answered has left it, or a moment later: others have got it, but the wire may not know
  /// that yet, and would take its end for a fault.
  virtual void settle() = 0;
};

/// Called by all ranks of the world. Throws WireAbandoned, or what went wrong on this rank.
std::unique_ptr<RpcWire> make_tensorpipe(const WireOptions& options, Answer answer);

}  // namespace sherd::detail
