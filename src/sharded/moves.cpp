#include "sharded/moves.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>

#include "comm/answers.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "comm/huge_pages.h"
#include "sharded/leaves.h"
#include "sharded/remote_shards.h"
#include "sherd/redistribute.h"
#include "tensor/boxes.h"
#include "tensor/swap_parts.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::RankPart;

constexpr int64_t kStagingBytes = RedistributeOptions().staging_bytes;

std::vector<HeldPart> held(const std::vector<Tensor>& tensors, const std::vector<Box>& boxes) {
  std::vector<HeldPart> parts;
  for (size_t i = 0; i < tensors.size(); ++i) parts.push_back({tensors[i], plan::grid_of(boxes[i])});
  return parts;
}

RankPart whole_on(int64_t rank, const Dims& size) { return {rank, 0, plan::grid_of(Box{Dims(size.size(), 0), size})}; }

// The parts of each rank, in the order of the group.
std::vector<std::vector<const RankPart*>> by_place(const Holders& holders, const std::vector<RankPart>& parts) {
  std::map<int64_t, std::vector<const RankPart*>> found;
  for (const RankPart& part : parts) found[part.rank].push_back(&part);
  std::vector<std::vector<const RankPart*>> places;
  for (const int64_t rank : holders.ranks()) places.push_back(std::move(found[rank]));
  return places;
}

// The most elements that a rank has to pack or unpack where one rank gets all: it gets them in place where they come
// in the order in which they lie, and a single shard is sent as it lies.
int64_t staged_by_gather(const Holders& holders, const std::vector<RankPart>& parts, const Dims& size) {
  size_t dim = 0;
  while (dim + 1 < size.size() && size[dim] == 1) ++dim;
  int64_t packed = 0;
  int64_t next = 0;
  bool in_order = !size.empty();
  for (const auto& here : by_place(holders, parts)) {
    int64_t elements = 0;
    for (const RankPart* part : here) {
      const int64_t count = plan::numel(part->rows);
      elements += count;
      if (count == 0 || !in_order) continue;
      for (size_t d = 0; d < size.size(); ++d) {
        in_order = in_order && part->rows[d].front().offset == (d == dim ? next : 0) &&
                   (d == dim || part->rows[d].front().size == size[d]);
      }
      next = part->rows[dim].front().offset + part->rows[dim].front().size;
    }
    if (here.size() > 1) packed = std::max(packed, elements);
  }
  return in_order ? packed : packed + numel(size);
}

// A rank that has neither pieces before nor after still takes part. `staged`: the most elements that a rank packs and
// unpacks.
void swap(const Holders& holders, std::vector<HeldPart> from, std::vector<HeldPart> to,
          const std::vector<RankPart>& all_from, const std::vector<RankPart>& all_to, const at::TensorOptions& options,
          size_t ndim, std::optional<int64_t> staged = {}) {
  if (!holders.group()) return;
  std::vector<RankPart> all = all_from;
  all.insert(all.end(), all_to.begin(), all_to.end());
  const PurposePtr purpose =
      purpose_with_boxes("a ShardedTensor of " + dtype_name(options.dtype().toScalarType()), all);
  if (from.empty() && to.empty()) from.push_back({at::empty({0}, options), plan::RunGrid(ndim)});
  swap_parts(
      *holders.group(), std::move(from), std::move(to), plan::transfers(all_from, all_to, holders.rank()),
      {.purpose = purpose, .elements = staged.value_or(largest(all_from) + largest(all_to)), .limit = kStagingBytes});
}

std::vector<Tensor> allocated(const ShardedLayout& layout, c10::ScalarType dtype) {
  std::vector<Tensor> pieces;
  for (const Box& box : layout.boxes)
    pieces.push_back(empty_large(box.size, at::TensorOptions(dtype).device(layout.device)));
  return pieces;
}

}  // namespace

std::vector<Tensor> plain_pieces(const Tensor& tensor) {
  const ShardedLayout& layout = *sharded_layout(tensor);
  std::vector<Tensor> pieces;
  for (const Tensor& piece : boxes_of(tensor)->pieces) {
    pieces.push_back(
        (sharded_layout(piece) != nullptr ? whole_everywhere(piece) : piece).to(layout.device).contiguous());
  }
  return pieces;
}

Tensor exchanged(const Tensor& tensor, const ShardedLayoutPtr& to) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ShardedLayout& from = *sharded_layout(tensor);
  std::vector<Tensor> pieces = allocated(*to, tensor.scalar_type());
  if (!tensor.is_meta()) {
    swap(from.holders, held(plain_pieces(tensor), from.boxes), held(pieces, to->boxes), from.parts(), to->parts(),
         at::TensorOptions(tensor.scalar_type()).device(from.device), from.size.size());
  }
  return wrap_sharded(to, std::move(pieces), tensor.scalar_type());
}

Tensor whole_everywhere(const Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ShardedLayout& layout = *sharded_layout(tensor);
  const auto options = at::TensorOptions(tensor.scalar_type()).device(layout.device);
  if (!layout.holders.group()) return at::empty(layout.size, options.device(c10::kMeta));
  const Tensor whole = empty_large(layout.size, options);
  std::vector<RankPart> wanted;
  for (const int64_t rank : layout.holders.ranks()) wanted.push_back(whole_on(rank, layout.size));
  swap(layout.holders, held(plain_pieces(tensor), layout.boxes),
       held({whole}, {{Dims(layout.size.size(), 0), layout.size}}), layout.parts(), wanted, options,
       layout.size.size());
  return whole;
}

Tensor cut_out(const Tensor& whole, const ShardedLayoutPtr& layout) {
  std::vector<Tensor> pieces;
  for (const Box& box : layout->boxes) pieces.push_back(part_of(whole, box).to(layout->device).contiguous());
  return wrap_sharded(layout, std::move(pieces), whole.scalar_type());
}

Tensor brought_to(const Tensor& tensor, const ShardedLayoutPtr& layout) {
  const ShardedLayout* has = sharded_layout(tensor);
  if (has == nullptr) return cut_out(tensor, layout);
  return same_layout(*has, *layout) ? tensor : exchanged(tensor, layout);
}

}  // namespace sherd::detail

namespace sherd::sharded {
namespace {

using at::Tensor;
using detail::BoxLayoutPtr;
using detail::ShardedLayout;
using detail::ShardedLayoutPtr;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct KeptLayout : torch::CustomClassHolder {
  explicit KeptLayout(ShardedLayoutPtr l) : layout(std::move(l)) {}
  ShardedLayoutPtr layout;
};

struct Resharded : Function<Resharded> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const ShardedLayoutPtr& to) {
    context->saved_data["kept"] =
        c10::IValue::make_capsule(c10::make_intrusive<KeptLayout>(detail::shared_layout(tensor)));
    return detail::exchanged(tensor, to);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    const auto& layout = static_cast<KeptLayout*>(context->saved_data["kept"].toCapsule().get())->layout;
    if (!is_sharded_tensor(grads[0])) return {detail::cut_out(grads[0], layout), Tensor()};
    return {Resharded::apply(grads[0], layout), Tensor()};
  }
};

// The ranks agree on what they were asked before anything moves: `say` checks this rank's arguments and gives what all
// must say alike.
void agree_on(const Group& group, const char* operation, const std::function<std::string()>& say) {
  const std::vector<std::string> all = detail::answers_of_all(group, operation, say);
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    detail::throw_value_error(ErrorText(operation, fmt::format("ranks {} and {} ask for different things",
                                                               group.ranks()[0], group.ranks()[i]))
                                  .fact(fmt::format("rank {}", group.ranks()[0]), all[0])
                                  .fact(fmt::format("rank {}", group.ranks()[i]), all[i])
                                  .help("the same call on every rank"));
  }
}

std::string text_of_all(const ShardingSpec& spec, const Dims& size) {
  // A long list is compared by its digest.
  constexpr size_t kLongest = 200;
  const std::string text = to_string(spec);
  if (spec.kind().count() <= 8 && text.size() <= kLongest) return text;
  size_t digest = spec.kind().count();
  for (size_t i = 0; i < spec.kind().count(); ++i) {
    digest = digest * 1099511628211ULL + std::hash<ShardMetadata>()(spec.kind().shard(size, i));
  }
  return fmt::format("{} of {} shards, digest {:016x}", spec.kind().name(), spec.kind().count(), digest);
}

}  // namespace

void ShardedTensor::gather(int64_t dst, const std::optional<Tensor>& out, const GatherOptions& options) const {
  constexpr const char* kOperation = "gather";
  const ShardedLayout& layout = detail::require_group(kOperation, *this);
  if (!layout.holders.group()) return;
  const Group& group = *layout.holders.group();
  const auto dtype = options.dtype.value_or(scalar_type());
  agree_on(group, kOperation, [&] {
    const std::string asked = fmt::format("dst {}, dtype {}", dst, detail::dtype_name(dtype));
    const auto refuse = [&](const std::string& why, const std::string& given, const std::string& help) {
      detail::throw_value_error(
          ErrorText(kOperation, why)
              .fact("tensor", fmt::format("{}{}", detail::dtype_name(scalar_type()), sherd::to_string(layout.size)))
              .fact("given", given)
              .help(help));
    };
    if (dst < 0 || dst >= group.size()) {
      refuse("dst is not a place in the group", std::to_string(dst), fmt::format("0 to {}", group.size() - 1));
    }
    if (group.rank() != dst) {
      if (out) refuse("only the rank that gathers takes an out", "out", "gather(dst) without out");
      return asked;
    }
    if (!out || !out->defined())
      refuse("the rank that gathers needs an out", "nothing", "torch::empty(tensor.sizes())");
    if (detail::has_meta(out->unsafeGetTensorImpl())) {
      refuse("out is itself distributed", sherd::to_string(out->sizes().vec()), "torch::empty(tensor.sizes())");
    }
    if (out->sizes() != at::IntArrayRef(layout.size)) {
      refuse("out has another size than the tensor", sherd::to_string(out->sizes().vec()),
             "torch::empty(tensor.sizes())");
    }
    if (options.enforce_dtype && out->scalar_type() != dtype) {
      refuse("out has another dtype than asked for", detail::dtype_name(out->scalar_type()),
             "an out of dtype " + detail::dtype_name(dtype));
    }
    return asked;
  });
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<Tensor> pieces = detail::plain_pieces(*this);
  for (Tensor& piece : pieces) piece = piece.to(dtype);
  const auto on = at::TensorOptions(dtype).device(layout.device);
  const bool here = group.rank() == dst;
  Tensor whole;
  if (here) {
    const bool direct = out->scalar_type() == dtype && out->device() == layout.device && out->is_contiguous();
    whole = direct ? *out : detail::empty_large(layout.size, on);
  }
  const int64_t rank = group.ranks()[static_cast<size_t>(dst)];
  const auto parts = layout.parts();
  detail::swap(
      layout.holders, detail::held(pieces, layout.boxes),
      here ? detail::held({whole}, {{Dims(layout.size.size(), 0), layout.size}}) : std::vector<detail::HeldPart>(),
      parts, {detail::whole_on(rank, layout.size)}, on, layout.size.size(),
      detail::staged_by_gather(layout.holders, parts, layout.size));
  if (here && !whole.is_same(*out)) out->copy_(whole);
}

ShardedTensor ShardedTensor::reshard(const ShardingSpec& spec) const {
  constexpr const char* kOperation = "reshard";
  const ShardedLayout& layout = detail::require_group(kOperation, *this);
  ShardedLayoutPtr to;
  const auto make = [&] {
    to = detail::make_layout(kOperation, spec, layout.size, layout.holders);
    return text_of_all(spec, layout.size);
  };
  if (layout.holders.group()) {
    agree_on(*layout.holders.group(), kOperation, make);
  } else {
    make();
  }
  if (detail::same_layout(layout, *to)) return *this;
  detail::settle_leaf(*this);
  return ShardedTensor(Resharded::apply(static_cast<const Tensor&>(*this), to));
}

ShardedTensor& ShardedTensor::reshard_(const ShardingSpec& spec) {
  if (requires_grad() && c10::GradMode::is_enabled()) {
    detail::throw_value_error(ErrorText("reshard_", "the tensor has a gradient to compute")
                                  .fact("tensor", to_string(*this))
                                  .help("tensor = tensor.reshard(spec), or torch::NoGradGuard around it"));
  }
  const c10::NoGradGuard no_grad;
  const ShardedTensor moved = reshard(spec);
  auto* meta = detail::boxes_of(*this);
  meta->layout = detail::boxes_of(moved)->layout;
  meta->pieces = detail::boxes_of(moved)->pieces;
  return *this;
}

ShardedTensor shard_tensor(const Tensor& tensor, const ShardingSpec& spec, int64_t src, const GroupOptions& options) {
  constexpr const char* kOperation = "shard_tensor";
  const detail::Holders holders = detail::holders_of(options);
  const Dims size = tensor.sizes().vec();
  ShardedLayoutPtr layout;
  const auto check = [&] {
    if (!tensor.is_contiguous()) {
      detail::throw_value_error(ErrorText(kOperation, "the tensor is not contiguous")
                                    .fact("strides", sherd::to_string(tensor.strides().vec()))
                                    .help("tensor.contiguous()"));
    }
    if (holders.group() && (src < 0 || src >= holders.group()->size())) {
      detail::throw_value_error(ErrorText(kOperation, "src is not a place in the group")
                                    .fact("src", std::to_string(src))
                                    .help(fmt::format("0 to {}", holders.group()->size() - 1)));
    }
    layout = detail::make_layout(kOperation, spec, size, holders);
    return fmt::format("src {}, {}{}, {}", src, detail::dtype_name(tensor.scalar_type()), sherd::to_string(size),
                       text_of_all(spec, size));
  };
  if (holders.group()) {
    agree_on(*holders.group(), kOperation, check);
  } else {
    check();
  }
  const bool requires_grad = tensor.requires_grad();
  std::vector<Tensor> pieces = detail::allocated(*layout, tensor.scalar_type());
  if (!tensor.is_meta() && holders.group()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const int64_t rank = holders.group()->ranks()[static_cast<size_t>(src)];
    std::vector<detail::HeldPart> from;
    if (rank == holders.rank())
      from = detail::held({tensor.detach().to(layout->device)}, {{Dims(size.size(), 0), size}});
    detail::swap(holders, std::move(from), detail::held(pieces, layout->boxes), {detail::whole_on(rank, size)},
                 layout->parts(), at::TensorOptions(tensor.scalar_type()).device(layout->device), size.size());
  }
  for (Tensor& piece : pieces) piece.requires_grad_(requires_grad);
  Tensor result = detail::wrap_sharded(layout, std::move(pieces), tensor.scalar_type());
  result.requires_grad_(requires_grad);
  if (options.init_rrefs) detail::register_remote_shards(result);
  return ShardedTensor(result);
}

}  // namespace sherd::sharded
