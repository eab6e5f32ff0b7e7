#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/transports.h"

namespace sherd::detail {

bool nccl_is_available() { return true; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const Meeting& meeting) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = meeting.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
