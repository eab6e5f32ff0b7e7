// Gloo comes with libtorch, its headers do not: gloo_headers/ declares the few names that ProcessGroupGloo.hpp needs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/transports.h"

namespace sherd::detail {

c10::intrusive_ptr<c10d::Backend> make_gloo(const Meeting& meeting) {
  auto options = c10d::ProcessGroupGloo::Options::create_default(meeting.timeout);
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.size, options);
}

}  // namespace sherd::detail
