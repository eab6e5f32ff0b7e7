#include "comm/local.h"

#include <algorithm>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

// In a pretended world a block may have another size than this rank's; then its contents stay as they are.
void copy_if_equal(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == from.numel()) copy_elements(to, from);
}

}  // namespace

void LocalBackend::run(const Call& call) {
  const auto me = static_cast<size_t>(getRank());
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::gather:
      for (const at::Tensor& output : call.outputs) copy_if_equal(output, call.inputs.front());
      return;
    case Collective::all_to_all:
      for (const at::Tensor& output : call.outputs) copy_if_equal(output, call.inputs.at(me));
      return;
    case Collective::reduce_scatter:
      copy_if_equal(call.outputs.front(), call.inputs.at(me));
      return;
    case Collective::scatter:
      if (!call.inputs.empty()) copy_if_equal(call.outputs.front(), call.inputs.at(me));
      return;
    default:
      return;  // in place, on this rank's own data
  }
}

void LocalBackend::run_send(const at::Tensor& tensor, int to, int tag) {
  if (to == getRank()) sent_.emplace_back(tag, tensor.clone());
}

std::function<void()> LocalBackend::start_receive(const at::Tensor& tensor, int from, int tag) {
  if (from != getRank()) return [] {};
  const auto message = std::find_if(sent_.begin(), sent_.end(), [&](const auto& m) { return m.first == tag; });
  if (message == sent_.end()) {
    throw_comm_error(ErrorText("receive", "this rank has sent itself nothing")
                         .fact("tag", std::to_string(tag))
                         .help("send(group, tensor, group.rank(), tag) first"));
  }
  check_fits(message->second, tensor);
  copy_elements(tensor, message->second);
  sent_.erase(message);
  return [] {};
}

}  // namespace sherd::detail
