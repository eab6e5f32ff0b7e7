#include "checkpoint/shared_views.h"

#include <unordered_map>

#include "checkpoint/placing.h"

namespace sherd::detail {
namespace {

bool has_plain_storage(const at::Tensor& tensor) {
  return tensor.defined() && !is_in_parts(tensor) && tensor.layout() == at::kStrided && !tensor.is_meta() &&
         !tensor.is_conj() && !tensor.is_neg() && tensor.has_storage() && tensor.numel() > 0;
}

}  // namespace

std::vector<std::vector<format::SharedView>> shared_views(const std::vector<SavedLeaf>& leaves) {
  std::unordered_map<const void*, size_t> places;
  std::vector<std::vector<format::SharedView>> all;
  for (const SavedLeaf& leaf : leaves) {
    const at::Tensor* tensor = leaf.value.tensor();
    if (tensor == nullptr || !has_plain_storage(*tensor)) continue;
    const auto [place, is_new] = places.try_emplace(tensor->storage().unsafeGetStorageImpl(), all.size());
    if (is_new) all.emplace_back();
    all[place->second].push_back(
        {leaf.name, tensor->storage_offset(), Dims(tensor->strides().begin(), tensor->strides().end())});
  }
  std::erase_if(all, [](const auto& views) { return views.size() < 2; });
  return all;
}

}  // namespace sherd::detail
