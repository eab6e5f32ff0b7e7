#include "sharded/shard_checks.h"

#include <fmt/format.h>

#include "comm/call.h"
#include "comm/errors.h"
#include "tensor/boxes_meta.h"

namespace sherd::detail {

void check_shard(const char* operation, size_t index, const sharded::Shard& shard,
                 const sharded::TensorProperties& properties, const sharded::ShardMetadata& metadata) {
  const at::Tensor& tensor = shard.tensor;
  const auto same = [&](bool fine, const char* what, const std::string& has, const std::string& wanted) {
    if (fine) return;
    throw_value_error(ErrorText(operation, fmt::format("{} of local shard {} does not fit", what, index))
                          .fact("local shard", has)
                          .fact("expected", wanted)
                          .help("the same for all shards of a tensor, and as the metadata say"));
  };
  const auto yes = [](bool flag) { return flag ? "true" : "false"; };
  same(tensor.layout() == c10::kStrided, "the layout", c10::str(tensor.layout()), "Strided");
  same(tensor.is_contiguous(), "the memory", "not contiguous", "contiguous: tensor.contiguous()");
  same(tensor.sizes() == at::IntArrayRef(metadata.shard_sizes), "the size", to_string(tensor.sizes().vec()),
       to_string(metadata.shard_sizes));
  if (metadata.placement) {
    const c10::Device wanted = metadata.placement->device;
    const bool fits = tensor.device() == wanted || (!wanted.has_index() && tensor.device().type() == wanted.type());
    same(fits, "the device", tensor.device().str(), to_string(*metadata.placement));
  }
  same(tensor.scalar_type() == properties.dtype, "the dtype", dtype_name(tensor.scalar_type()),
       dtype_name(properties.dtype));
  same(tensor.requires_grad() == properties.requires_grad, "requires_grad", yes(tensor.requires_grad()),
       yes(properties.requires_grad));
  const bool pinned = sharded::TensorProperties::create_from_tensor(tensor).pin_memory;
  same(pinned == properties.pin_memory, "pin_memory", yes(pinned), yes(properties.pin_memory));
}

}  // namespace sherd::detail
