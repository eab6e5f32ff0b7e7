#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/errors.h"
#include "comm/transports.h"

namespace sherd::detail {

bool nccl_is_available() { return false; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const Meeting&) {
  throw_comm_error(ErrorText("group", "this build has no NCCL")
                       .fact("torch", "built without CUDA")
                       .help("build sherd with a CUDA torch: SHERD_TORCH=<prefix> ./dev build cuda"));
}

}  // namespace sherd::detail
