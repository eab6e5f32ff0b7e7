#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/errors.h"
#include "comm/transports.h"

namespace sherd::detail {
namespace {

[[noreturn]] void refuse(const char* operation) {
  throw_comm_error(ErrorText(operation, "this build has no MPI")
                       .fact("MPI", "not found when sherd was built")
                       .help("apt-get install libopenmpi-dev openmpi-bin, and build sherd again"));
}

}  // namespace

bool mpi_is_available() { return false; }

MpiWorld mpi_world() { refuse("init"); }

std::string broadcast_by_mpi(const std::string&, std::chrono::milliseconds) { refuse("init"); }

c10::intrusive_ptr<c10d::Backend> make_mpi(const Meeting&, int64_t) { refuse("group"); }

}  // namespace sherd::detail
