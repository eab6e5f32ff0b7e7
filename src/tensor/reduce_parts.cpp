#include "tensor/reduce_parts.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "comm/reduce_tensors.h"
#include "tensor/joint_swap.h"
#include "tensor/runs.h"
#include "tensor/travel_types.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// What the parts of an element are reduced by. Sums and averages may stand beside each other; other reductions do not.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  int64_t divisor = 1;  // of the result
};
Reduction reduction_of(const Layout& layout) {
  std::vector<ReduceOp> ops;
  int64_t averaged = 1;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&layout.placements[axis]);
    if (partial == nullptr) continue;
    ops.push_back(partial->op);
    if (partial->op == ReduceOp::avg) averaged *= layout.mesh.axes()[axis].size;
  }
  const bool alike = std::all_of(ops.begin(), ops.end(), [&](ReduceOp op) { return op == ops.front(); });
  return alike ? Reduction{ops.front()} : Reduction{ReduceOp::sum, averaged};
}

c10::ScalarType dtype_for(c10::ScalarType own, const Reduction& reduction, std::optional<c10::ScalarType> asked) {
  const c10::ScalarType chosen = reduces_in(own, asked);
  // Nobody adds up complex numbers of 16 bits.
  if (chosen == c10::ScalarType::ComplexHalf) return c10::ScalarType::ComplexFloat;
  // The sum of what is averaged afterwards may be more than 16 bits hold.
  return reduction.divisor > 1 && c10::isReducedFloatingType(chosen) ? c10::ScalarType::Float : chosen;
}

void put_reduced(const PartsToReduce& tensor, const std::vector<HeldPart>& arrived, const ReducePartsOptions& options) {
  const Reduction reduction = reduction_of(tensor.layout);
  const c10::ScalarType dtype = dtype_for(tensor.held.tensor.scalar_type(), reduction, options.reduce_dtype);
  for (size_t p = 0; p < tensor.pieces.size(); ++p) {
    const HeldPart& first = arrived[p * tensor.parts];
    if (first.tensor.numel() == 0) continue;
    std::vector<Tensor> given;
    for (size_t c = 0; c < tensor.parts; ++c) given.push_back(arrived[p * tensor.parts + c].tensor.to(dtype));
    const Tensor value = at::empty(first.tensor.sizes(), given.front().options());
    reduce_into(value, given, reduction.op);
    if (reduction.divisor > 1) value.div_(reduction.divisor);
    const HeldPart& into = tensor.pieces[p].into;
    put(into.tensor, into.rows, first.rows, value.to(tensor.held.tensor.scalar_type()));
  }
}

// What lies in memory at a time if all is done in one round, on any rank: parts that have arrived, with what others are
// sent and what comes from them as it was packed, or with the parts of a piece in the type that they are reduced in,
// their sum, and that in the tensor's own.
int64_t staged_bytes(const PartsToReduce& tensor, const ReducePartsOptions& options) {
  const c10::ScalarType own = tensor.held.tensor.scalar_type();
  const c10::ScalarType sums = dtype_for(own, reduction_of(tensor.layout), options.reduce_dtype);
  const auto parts = static_cast<int64_t>(tensor.parts);
  const auto size = static_cast<int64_t>(c10::elementSize(own));
  const auto wide = static_cast<int64_t>(c10::elementSize(sums));
  const int64_t moving = (2 * parts * tensor.most_taken + tensor.most_given) * size;
  const int64_t reducing = sums == own ? (parts + 1) * size : parts * size + (parts + 1) * wide + size;
  return std::max(moving, tensor.most_taken * reducing);
}

// The rounds take shares of a piece and of what is sent of it: these nest only where they are cut from the same rows.
void check_pieces(const PartsToReduce& tensor) {
  for (const plan::Transfer& take : tensor.contributions.takes) {
    TORCH_INTERNAL_ASSERT(take.rows == tensor.pieces.at(take.to / tensor.parts).rows, "a piece lies at several places");
  }
}

// The share of a piece that a round takes. Pieces with fewer rows than there are rounds take different ones: by where
// they lie, which is what both sides of a message know of them.
RunGrid share_of(RunGrid rows, int64_t rounds, int64_t round) {
  if (rounds == 1) return rows;
  int64_t turn = round;
  for (const plan::RunList& runs : rows) turn += runs.empty() ? 0 : runs.front().offset;
  return plan::share_of(std::move(rows), rounds, turn % rounds);
}

plan::Transfers share_of(plan::Transfers transfers, int64_t rounds, int64_t round) {
  for (auto* side : {&transfers.gives, &transfers.takes}) {
    for (plan::Transfer& transfer : *side) transfer.rows = share_of(std::move(transfer.rows), rounds, round);
  }
  return transfers;
}

}  // namespace

void check_can_reduce(const char* operation, const Layout& layout, const at::TensorOptions& like,
                      std::optional<c10::ScalarType> reduce_dtype) {
  const Reduction reduction = reduction_of(layout);
  const Tensor none = at::empty({0}, like.dtype(dtype_for(like.dtype().toScalarType(), reduction, reduce_dtype)));
  check_reduction(operation, none, reduction.divisor > 1 ? ReduceOp::avg : reduction.op);
}

void reduce_parts(const Group& group, const std::vector<const PartsToReduce*>& tensors,
                  const ReducePartsOptions& options) {
  int64_t bytes = 0;
  for (const PartsToReduce* tensor : tensors) {
    check_pieces(*tensor);
    bytes += staged_bytes(*tensor, options);
  }
  const int64_t rounds = rounds_for(bytes, options.staging_bytes);
  for (int64_t round = 0; round < rounds; ++round) {
    JointSwap swap;
    std::vector<std::vector<HeldPart>> arrived;  // of each tensor
    for (size_t i = 0; i < tensors.size(); ++i) {
      const PartsToReduce& tensor = *tensors[i];
      const int64_t turn = (round + static_cast<int64_t>(i)) % rounds;  // small ones take different rounds
      std::vector<HeldPart>& parts = arrived.emplace_back();
      for (const PieceToReduce& piece : tensor.pieces) {
        const RunGrid rows = share_of(piece.rows, rounds, turn);
        for (size_t c = 0; c < tensor.parts; ++c) {
          parts.push_back({at::empty(plan::shape_of(rows), tensor.held.tensor.options()), rows});
        }
      }
      swap.add({tensor.held}, parts, share_of(tensor.contributions, rounds, turn));
    }
    // One round of its own: these are the rounds.
    swap_parts(group, std::move(swap.from), std::move(swap.to), swap.transfers,
               {.purpose = options.purpose, .limit = options.staging_bytes});
    // In one order on every rank.
    for (size_t i = 0; i < tensors.size(); ++i) put_reduced(*tensors[i], arrived[i], options);
  }
}

}  // namespace sherd::detail
