// RPC by libtorch's TensorPipe agent. Every rank has one, also where ranks are threads: the agent that libtorch keeps
// for a whole process (RpcAgent::getCurrentRpcAgent) is neither set nor asked.
#include <tensorpipe/transport/uv/factory.h>
#include <torch/csrc/distributed/rpc/request_callback.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/distributed/rpc/utils.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "comm/address_for_others.h"
#include "comm/agent_store.h"
#include "comm/broken_pipes.h"
#include "comm/errors.h"
#include "comm/rpc_wire.h"
#include "sherd/blocking.h"

namespace sherd::detail {
namespace {

namespace rpc = torch::distributed::rpc;
using rpc::JitFuture;
using rpc::Message;
using rpc::MessageType;
using rpc::TensorPipeAgent;

// The agent counts milliseconds in 31 bits, and takes zero for ever.
float agent_seconds(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 20);
  return static_cast<float>(std::clamp(time, std::chrono::milliseconds(1), kMost).count()) / 1000.0F;
}

// A message that the agent received, in our words.
RpcMessage ours(Message& message) {
  if (message.tensors().size() > 1) return {};  // nobody sends this: what has no head is refused
  return {message.payload(), message.tensors().empty() ? at::Tensor() : message.tensors().front()};
}

c10::intrusive_ptr<Message> theirs(RpcMessage message, MessageType type) {
  std::vector<at::Tensor> tensors;
  if (message.data.defined()) tensors.push_back(std::move(message.data));
  return c10::make_intrusive<Message>(std::move(message.head), std::move(tensors), type);
}

// Tensors that are being sent. The agent does not say when it is done with one, but lets go of it then.
class Outgoing {
 public:
  void add(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    std::erase_if(tensors_, [](const auto& sent) { return sent.expired(); });
    if (tensor.defined()) tensors_.emplace_back(tensor.getIntrusivePtr());
  }
  bool none() {
    add({});
    const std::lock_guard lock(mutex_);
    return tensors_.empty();
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> tensors_;
};

class Responder final : public rpc::RequestCallback {
 public:
  Responder(Answer answer, std::shared_ptr<Outgoing> outgoing)
      : answer_(std::move(answer)), outgoing_(std::move(outgoing)) {}

 private:
  c10::intrusive_ptr<JitFuture> processMessage(Message& request, std::vector<c10::Stream>) const override {
    auto future = c10::make_intrusive<JitFuture>(at::AnyClassType::get());
    RpcMessage message = answer_(ours(request));
    outgoing_->add(message.data);
    auto reply = theirs(std::move(message), MessageType::SCRIPT_RET);
    reply->setId(request.id());
    auto storages = reply->getStorages();
    future->markCompleted(c10::IValue(std::move(reply)), std::move(storages));
    return future;
  }

  Answer answer_;
  std::shared_ptr<Outgoing> outgoing_;
};

// What TensorPipe says, without the mark of a kind of error before it and the place in its source behind.
std::string brief(const std::string& text) {
  const size_t start = text.starts_with("RPCErr:") ? text.find(':', sizeof "RPCErr:") + 1 : 0;
  const size_t end = text.find(" (this error originated at");
  return text.substr(start, end == std::string::npos ? end : end - start);
}

class PendingMessage final : public PendingReply {
 public:
  explicit PendingMessage(c10::intrusive_ptr<JitFuture> future) : future_(std::move(future)) {}

  RpcMessage wait() override {
    {
      const BlockingScope others_run;
      future_->wait();
    }
    if (!future_->hasError()) return ours(*future_->value().toCustomClass<Message>());
    throw NoAnswer(brief(future_->tryRetrieveErrorMessage()),
                   rpc::getRPCErrorType(*future_) == rpc::RPCErrorType::TIMEOUT);
  }

 private:
  c10::intrusive_ptr<JitFuture> future_;
};

// How the bytes of tensors travel, the best way first: out of the other process's memory, or as the messages do.
// Further ones would set up every GPU of the machine, or listen at addresses of their own choice.
std::vector<std::string> channels() {
  std::vector<std::string> names = {"cma", "basic"};
  std::erase_if(names, [](const std::string& name) { return !rpc::TensorPipeChannelRegistry()->Has(name); });
  return names;
}

// The address at which an agent that this thread starts listens; "" where TensorPipe shall choose.
thread_local std::string own_address;

std::unique_ptr<rpc::TransportRegistration> make_tcp() {
  const std::string address = own_address.empty() ? TensorPipeAgent::guessAddress() : own_address;
  return std::make_unique<rpc::TransportRegistration>(
      rpc::TransportRegistration{tensorpipe::transport::uv::create(), rpc::kUvTransportPriority, address});
}

// An agent has no option for its address: it asks the registered maker of the TCP transport. This one takes that place,
// and does for others in the process, torch.distributed.rpc say, what the one before did.
void register_tcp() {
  static const bool once = [] {
    auto& registry = *rpc::TensorPipeTransportRegistry();
    registry.SetTerminate(false);
    try {
      registry.Register("uv", make_tcp, c10::REGISTRY_PREFERRED);
    } catch (const std::exception&) {  // somebody else has done the like: TensorPipe chooses
    }
    registry.SetTerminate(true);
    return true;
  }();
  (void)once;
}

// Ranks that are threads of one process need no network.
std::string address_of(const WireOptions& options, const c10::intrusive_ptr<AgentStore>& store) {
  if (options.link->hubs) return "127.0.0.1";
  const char* chosen = std::getenv("TP_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe): read as TensorPipe does
  const std::string address = address_for_others(
      {.store = store, .rank = options.link->rank, .size = options.link->size, .timeout = options.timeout},
      chosen != nullptr && *chosen != '\0');
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

class TensorPipeWire final : public RpcWire {
 public:
  TensorPipeWire(const WireOptions& options, Answer answer)
      : store_(c10::make_intrusive<AgentStore>(options.key, options.link, options.timeout)) {
    ignore_broken_pipes();
    register_tcp();
    try {
      own_address = address_of(options, store_);
      const rpc::TensorPipeRpcBackendOptions agent_options(options.threads, std::nullopt, channels(),
                                                           agent_seconds(options.timeout), "env://");
      const auto me = static_cast<rpc::worker_id_t>(options.link->rank);
      agent_ = std::make_shared<TensorPipeAgent>(store_, options.names[static_cast<size_t>(me)], me, options.link->size,
                                                 agent_options, std::unordered_map<std::string, rpc::DeviceMap>(),
                                                 std::vector<c10::Device>(),
                                                 std::make_unique<Responder>(std::move(answer), outgoing_));
      agent_->start();
    } catch (const WireAbandoned&) {
      throw;
    } catch (const std::exception&) {
      store_->abandon();
      throw;
    }
  }

  ~TensorPipeWire() override {
    const BlockingScope others_run;
    try {
      agent_->shutdown();
    } catch (const std::exception&) {  // it is as good as shut down
    }
  }

  std::shared_ptr<PendingReply> ask(int rank, RpcMessage request, std::chrono::milliseconds timeout) override {
    try {
      const auto& to = agent_->getWorkerInfo(static_cast<rpc::worker_id_t>(rank));
      return std::make_shared<PendingMessage>(
          agent_->send(to, theirs(std::move(request), MessageType::SCRIPT_CALL), agent_seconds(timeout)));
    } catch (const std::exception& error) {
      throw NoAnswer(message_of(error), false);
    }
  }

  void finish() override {
    const BlockingScope others_run;
    store_->part();
    agent_->join(true);
  }

  void settle() override {
    constexpr std::chrono::milliseconds kMoment(1000);
    const BlockingScope others_run;
    const auto end = std::chrono::steady_clock::now() + kMoment;
    while (!outgoing_->none() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  c10::intrusive_ptr<AgentStore> store_;
  std::shared_ptr<Outgoing> outgoing_ = std::make_shared<Outgoing>();
  std::shared_ptr<TensorPipeAgent> agent_;
};

}  // namespace

std::unique_ptr<RpcWire> make_tensorpipe(const WireOptions& options, Answer answer) {
  return std::make_unique<TensorPipeWire>(options, std::move(answer));
}

}  // namespace sherd::detail
