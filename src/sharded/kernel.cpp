// What an operator on tensors in boxes does: a user's function, one of the few below, piece by piece, or as DTensors.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "comm/call.h"
#include "comm/errors.h"
#include "sharded/as_dtensor.h"
#include "sharded/boxed_dtensors.h"
#include "sharded/by_pieces.h"
#include "sharded/call_tensors.h"
#include "sharded/custom_ops.h"
#include "sharded/embedding.h"
#include "sharded/layout.h"
#include "sharded/leaves.h"
#include "sharded/local_shards.h"
#include "sharded/local_shards_ops.h"
#include "sherd/collectives.h"
#include "tensor/draw.h"
#include "tensor/rewrite_tools.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

std::string text_of(const Tensor& tensor) {
  const BoxesMeta* meta = boxes_of(tensor);
  const std::string size = dtype_name(tensor.scalar_type()) + to_string(tensor.sizes().vec());
  if (meta == nullptr) return size;
  return fmt::format("{} in {} pieces here", size, meta->pieces.size());
}

// The shards of two LocalShardsWrappers in any order. Flags that are not data do not count.
template <class Same>
bool same_shards(const Tensor& a, const Tensor& b, const Same& same) {
  const LocalShardsLayout* left = local_shards_layout(a);
  const LocalShardsLayout* right = local_shards_layout(b);
  if (left == nullptr || right == nullptr || a.scalar_type() != b.scalar_type()) return false;
  if (left->chunks.size() != right->chunks.size()) return false;
  for (size_t i = 0; i < left->chunks.size(); ++i) {
    const auto there = right->table.find(left->chunks[i].offsets);
    if (!there || right->chunks[*there] != left->chunks[i]) return false;
    if (!same(boxes_of(a)->pieces[i], boxes_of(b)->pieces[*there])) return false;
  }
  return true;
}

// Both must be alike in every respect; then all ranks agree on whether all of their pieces are.
template <class Same>
bool same_everywhere(const char* operation, const Tensor& a, const Tensor& b, const Same& same) {
  const BoxesMeta* one = boxes_of(a);
  const BoxesMeta* other = boxes_of(b);
  if (one == nullptr || other == nullptr) {
    throw c10::TypeError(ErrorText(operation, "a tensor in pieces is compared with one of its kind")
                             .fact("one", text_of(a))
                             .fact("other", text_of(b))
                             .help("sherd::sharded::shard_tensor(tensor, spec)")
                             .str());
  }
  const ShardedLayout* left = sharded_layout(a);
  const ShardedLayout* right = sharded_layout(b);
  const auto all_same = [&] {
    for (size_t i = 0; i < one->pieces.size(); ++i) {
      if (!same(one->pieces[i], other->pieces[i])) return false;
    }
    return true;
  };
  if (left == nullptr || right == nullptr) return left == right && same_shards(a, b, same);
  if (!same_layout(*left, *right) || a.scalar_type() != b.scalar_type()) return false;
  if (!left->holders.group()) return !left->holders.world() ? all_same() : true;
  const Tensor flag = at::empty({1}, at::TensorOptions(c10::kLong).device(left->mesh->device()));
  flag.fill_(all_same() ? 1 : 0);
  all_reduce(*left->holders.group(), flag, ReduceOp::min).wait();
  return flag.item<int64_t>() == 1;
}

bool equal(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor a = argument(stack, op, 0).toTensor();
  const Tensor b = argument(stack, op, 1).toTensor();
  answer(op, stack, same_everywhere("equal", a, b, [](const Tensor& x, const Tensor& y) { return x.equal(y); }));
  return true;
}

bool allclose(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor a = argument(stack, op, 0).toTensor();
  const Tensor b = argument(stack, op, 1).toTensor();
  const double rtol = argument(stack, op, 2).toDouble();
  const double atol = argument(stack, op, 3).toDouble();
  const bool equal_nan = argument(stack, op, 4).toBool();
  answer(op, stack, same_everywhere("allclose", a, b, [&](const Tensor& x, const Tensor& y) {
           return x.allclose(y, rtol, atol, equal_nan);
         }));
  return true;
}

bool is_pinned(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  if (is_local_shards(self)) {
    answer(op, stack, LocalShardsWrapper(self).is_pinned());
    return true;
  }
  const ShardedLayout* layout = sharded_layout(self);
  if (layout == nullptr) return false;
  answer(op, stack, layout->pin_memory);
  return true;
}

struct Special {
  std::string_view name;
  Rewrite function;
};
constexpr Special kSpecial[] = {
    {"aten::equal", equal},
    {"aten::allclose", allclose},
    {"aten::is_pinned", is_pinned},
    {"aten::embedding", embedding_below_autograd},
    {"aten::embedding_renorm_", embedding_renorm},
    {"aten::view", view_of_shards},
    {"aten::new_empty", new_beside_shards},
    {"aten::new_empty_strided", new_beside_shards},
    {"aten::new_zeros", new_beside_shards},
    {"aten::new_ones", new_beside_shards},
    {"aten::new_full", new_beside_shards},
    {"_c10d_functional::all_gather_into_tensor", all_gather_shards},
    {"_c10d_functional::wait_tensor", wait_for_shards},
};

bool run_special(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  for (const Special& special : kSpecial) {
    if (special.name == info.name) return special.function(op, stack);
  }
  // The others of the random operators go as DTensors, which have the same numbers at the same places.
  const bool draws = info.rewrite == draw_in_place || info.rewrite == draw_anew || info.rewrite == draw_like;
  // A LocalShardsWrapper draws as other tensors of one rank do, shard by shard.
  if (!draws || is_local_shards(stack[stack.size() - info.arguments.size()].toTensor())) return false;
  const Rewriting scope(info);
  return info.rewrite(op, stack);
}

// A DTensor and a ShardedTensor are cut in two ways that need not fit.
void refuse_mixture(const OpInfo& info, const std::vector<CallTensor>& tensors) {
  for (const CallTensor& tensor : tensors) {
    const DTensorMeta* meta = meta_of(tensor.tensor);
    if (meta == nullptr) continue;
    throw_value_error(ErrorText(info.short_name(), "a DTensor meets a tensor in pieces")
                          .fact("DTensor", describe(*meta->spec, tensor.tensor.scalar_type()))
                          .help("sherd::sharded::to_dtensor(tensor) or sherd::sharded::from_dtensor(tensor) first"));
  }
}

[[noreturn]] void refuse(const OpInfo& info, const std::vector<CallTensor>& tensors) {
  ErrorText text(info.short_name(), "this operator cannot go piece by piece");
  for (const CallTensor& tensor : tensors) {
    if (tensor.tensor.defined()) text.fact("tensor", text_of(tensor.tensor));
  }
  const bool own = std::any_of(tensors.begin(), tensors.end(),
                               [](const CallTensor& t) { return t.tensor.defined() && is_local_shards(t.tensor); });
  if (own) {
    text.help("sherd::from_local(wrapper, mesh, placements), or the shards one by one: wrapper.local_shards()");
  } else {
    text.help("gather the tensor first, or sherd::sharded::custom_sharded_op(\"" + info.name + "\", function)");
  }
  throw c10::NotImplementedError(text.str());
}

void run(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (run_on_boxed_dtensors(op, info, stack)) return;
  const std::vector<CallTensor> tensors = tensors_of(info, stack);
  for (const CallTensor& tensor : tensors) settle_leaf(tensor.tensor);
  if (run_custom_op(op, stack)) return;
  if (info.is_foreach) return run_lists_by_pieces(op, info, stack);
  refuse_mixture(info, tensors);
  if (run_special(op, info, stack) || run_by_pieces(op, info, stack) || run_as_dtensors(op, info, stack)) return;
  refuse(info, tensors);
}

struct Install {
  Install() { boxes_kernel = &run; }
} install;

}  // namespace
}  // namespace sherd::detail
