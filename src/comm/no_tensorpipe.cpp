#include "comm/errors.h"
#include "comm/rpc_wire.h"

namespace sherd::detail {

std::unique_ptr<RpcWire> make_tensorpipe(const WireOptions&, Answer) {
  throw_comm_error(ErrorText("init_rpc", "this build has no RPC")
                       .fact("TensorPipe", "not in torch when sherd was built, or left out")
                       .help("build sherd with a torch that has it, as the wheels for Linux do"));
}

}  // namespace sherd::detail
