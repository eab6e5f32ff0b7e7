#include <fmt/format.h>

#include "checkpoint/dtypes.h"
#include "checkpoint/placing.h"
#include "checkpoint/saved_state.h"
#include "comm/errors.h"
#include "sharded/layout.h"
#include "tensor/boxes_meta.h"
#include "tensor/meta.h"
#include "tensor/own_memory.h"

namespace sherd::detail {
namespace {

using Known = SavedLeaf::Known;

bool is_nested(const BoxesMeta& meta) {
  return std::any_of(meta.pieces.begin(), meta.pieces.end(),
                     [](const at::Tensor& piece) { return has_meta(piece.unsafeGetTensorImpl()); });
}

void require_data(const char* operation, const at::Tensor& tensor) {
  if (!tensor.is_meta() && !has_no_memory(tensor)) return;
  throw_value_error(ErrorText(operation, "the tensor is on the meta device and has no data")
                        .help("sherd::load(state, path) gives it memory and fills it"));
}

void describe_tensor(const char* operation, const at::Tensor& given, SavedLeaf& leaf) {
  const at::Tensor tensor = with_zeros(given);
  if (!tensor.is_same(given)) leaf.value = tensor;
  leaf.tensor = checkpointable(tensor);
  require_data(operation, tensor);
  leaf.dtype = to_format(operation, tensor.scalar_type());
  leaf.requires_grad = tensor.requires_grad();
  leaf.size = leaf.tensor->global_size();
  leaf.known = Known::nothing;
  if (const DTensorMeta* meta = meta_of(tensor)) {
    if (meta->spec->boxes) return;
    leaf.known = Known::layout;
    leaf.layout = meta->spec->layout();
  } else if (const BoxesMeta* boxes = boxes_of(tensor)) {
    const ShardedLayout* sharded = sharded_layout(tensor);
    if (sharded == nullptr || is_nested(*boxes)) return;
    leaf.known = Known::shards;
    for (const plan::RankPart& part : sharded->parts()) {
      Box box;
      for (const plan::RunList& rows : part.rows) {
        box.offset.push_back(rows.empty() ? 0 : rows.front().offset);
        box.size.push_back(plan::rows_of(rows));
      }
      leaf.shards.emplace_back(part.rank, std::move(box));
    }
  } else {
    leaf.known = Known::whole;
  }
}

// Tensors inside of what is one object.
void check_object(const char* operation, const StateValue& value) {
  if (const at::Tensor* tensor = value.tensor(); tensor != nullptr && tensor->defined()) {
    require_dense(operation, *tensor);
    require_memory(operation, with_zeros(*tensor));
    require_data(operation, *tensor);
  }
  const auto check_items = [&](const std::vector<StateValue>& items) {
    for (const StateValue& item : items) check_object(operation, item);
  };
  if (value.list() != nullptr) check_items(*value.list());
  if (value.tuple() != nullptr) check_items(value.tuple()->items);
  if (value.dict() == nullptr) return;
  for (const auto& [key, item] : *value.dict()) check_object(operation, item);
}

void describe_own(const char* operation, const std::string& name, SavedLeaf& leaf) {
  leaf.known = Known::nothing;
  const auto items = leaf.tensor->write_items(name);
  if (items.empty()) return;
  leaf.dtype = to_format(operation, items.front().properties.dtype);
  leaf.requires_grad = items.front().properties.requires_grad;
  leaf.size = items.front().global_size;
}

}  // namespace

std::vector<SavedLeaf> leaves_of(const char* operation, const StateDict& state) {
  std::vector<SavedLeaf> leaves;
  for (FlatLeaf& flat : flatten_state_dict(state)) {
    SavedLeaf leaf;
    leaf.name = std::move(flat.name);
    leaf.path = std::move(flat.path);
    leaf.value = std::move(flat.value);
    if (leaf.path.size() > format::kMostPathParts) {
      throw_value_error(ErrorText(operation, "a value of the state lies too deep")
                            .fact("key", leaf.name)
                            .fact("containers around it", fmt::format("{}", leaf.path.size()))
                            .fact("most", fmt::format("{}", format::kMostPathParts))
                            .help("a flatter state: nobody could read this one back"));
    }
    try {
      if (const at::Tensor* tensor = leaf.value.tensor(); tensor != nullptr && tensor->defined()) {
        describe_tensor(operation, *tensor, leaf);
      } else if (leaf.value.checkpointable() != nullptr) {
        leaf.tensor = std::get<std::shared_ptr<Checkpointable>>(leaf.value.content());
        describe_own(operation, leaf.name, leaf);
      } else {
        check_object(operation, leaf.value);
      }
    } catch (const std::exception& error) {
      throw_value_error(ErrorText(operation, "a value of the state cannot be saved")
                            .fact("key", leaf.name)
                            .fact("because", message_of(error))
                            .help("leave the key out, or save something else under it"));
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

}  // namespace sherd::detail
