#include "sharded/by_pieces.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "comm/call.h"
#include "comm/errors.h"
#include "sharded/boxed_dtensors.h"
#include "sharded/call_tensors.h"
#include "sharded/moves.h"
#include "sherd/collectives.h"
#include "tensor/infer.h"
#include "tensor/rule_for.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using rules::BoundOperand;
using rules::BoundRule;
using rules::FactorKind;
using torch::jit::Stack;

// A tensor of the call that lies in boxes, its boxes being those of the leading one.
constexpr int kNotCut = -1;

// What a factor means for a piece: rows of this dim of the leading tensor, or all.
using FactorDims = std::vector<int>;

class PieceCall {
 public:
  PieceCall(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack)
      : op_(op), info_(info), stack_(stack), base_(stack.size() - info.arguments.size()) {}

  bool run() {
    if (!prepare()) return false;
    std::vector<std::vector<Tensor>> results(rule_.outputs.size());  // per output, its pieces
    const size_t count = layout_->boxes.size();
    for (size_t i = 0; i < count; ++i) {
      if (!elementwise_ && numel(layout_->boxes[i]) == 0) continue;
      Stack call = call_on(layout_->boxes[i], i);
      op_.callBoxed(call);
      for (size_t k = 0; k < results.size() && !info_.writes; ++k) results[k].push_back(call[k].toTensor());
    }
    std::vector<c10::IValue> answers;
    if (info_.writes) {
      for (const int argument : info_.return_of) answers.push_back(stack_[base_ + static_cast<size_t>(argument)]);
    } else if (reduces_) {
      answers.emplace_back(reduced(std::move(results[0])));
    } else {
      for (size_t k = 0; k < results.size(); ++k) answers.emplace_back(wrapped(k, std::move(results[k])));
    }
    torch::jit::drop(stack_, info_.arguments.size());
    for (c10::IValue& answer : answers) stack_.push_back(std::move(answer));
    return true;
  }

 private:
  bool prepare() {
    for (const int argument : info_.return_of) {
      if (info_.writes && argument < 0) return false;
    }
    if (info_.is_inplace_view || info_.reads_strides) return false;
    tensors_ = tensors_of(info_, stack_);
    if (!choose_lead()) return false;
    layout_ = boxes_of(tensors_[lead_].tensor)->layout;
    if (info_.is_random && !is_own()) return false;
    for (const CallTensor& tensor : tensors_) {  // a rank that wrote its part of a plain tensor would leave the rest
      if (info_.arguments[tensor.argument].written && boxes_of(tensor.tensor) == nullptr) return false;
    }
    const auto found = rule_for(info_, info_.call(op_.schema(), stack_), infer_results(op_, info_, stack_));
    if (!found || found->window || !returns_tensors()) return false;
    rule_ = *found;
    if (rule_.inputs.size() != tensors_.size() || rule_.outputs.size() != info_.return_of.size()) return false;
    return outs_fit() && (is_elementwise() || goes_by_factors()) && align_others();
  }

  bool returns_tensors() const {
    const auto& returns = op_.schema().returns();
    return std::all_of(returns.begin(), returns.end(),
                       [](const c10::Argument& r) { return r.type()->kind() == c10::TypeKind::TensorType; });
  }

  // What is written leads, for it stays where it is; else the first of the most dims.
  bool choose_lead() {
    std::optional<size_t> lead;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const CallTensor& candidate = tensors_[i];
      if (boxes_of(candidate.tensor) == nullptr) continue;
      if (info_.arguments[candidate.argument].written) {
        lead = i;
        break;
      }
      if (!lead || candidate.tensor.dim() > tensors_[*lead].tensor.dim()) lead = i;
    }
    lead_ = lead.value_or(0);
    return lead.has_value();
  }

  // Of a rank's own pieces nobody else knows: what they give together is the rank's alone.
  bool is_own() const { return layout_->outer.has_value(); }

  // What is written by out= lies in the same pieces.
  bool outs_fit() const {
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      if (!info_.arguments[i].out) continue;
      const c10::IValue& value = stack_[base_ + i];
      const BoxesMeta* meta = value.isTensor() ? boxes_of(value.toTensor()) : nullptr;
      if (meta == nullptr || (meta->layout != layout_ && !alike(*meta->layout, *layout_))) return false;
    }
    return true;
  }
  static bool alike(const BoxLayout& a, const BoxLayout& b) {
    const auto* one = dynamic_cast<const ShardedLayout*>(&a);
    const auto* other = dynamic_cast<const ShardedLayout*>(&b);
    return one != nullptr && other != nullptr && same_layout(*one, *other);
  }

  // Every result has the leading tensor's size, and what stands at a place depends on what stands there in the
  // operands.
  bool is_elementwise() {
    const BoundOperand& lead = rule_.inputs[lead_];
    for (const rules::BoundFactor& factor : rule_.factors) {
      if (factor.kind != FactorKind::pass) return false;
    }
    const auto fits = [&](const BoundOperand& operand, const at::IntArrayRef* size) {
      if (operand.unused || operand.dims.size() > lead.dims.size()) return operand.unused;
      const size_t shift = lead.dims.size() - operand.dims.size();
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        const bool same = operand.dims[d] == lead.dims[d + shift];
        const bool broadcast = size != nullptr ? (*size)[d] == 1 : false;
        if (!same && !(broadcast && operand.dims[d].empty())) return false;
        if (size != nullptr && !broadcast && (*size)[d] != layout_->size[d + shift]) return false;
      }
      return true;
    };
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].tensor.defined()) continue;
      const at::IntArrayRef size = tensors_[i].tensor.sizes();
      if (!fits(rule_.inputs[i], &size)) return false;
    }
    for (const BoundOperand& output : rule_.outputs) {
      if (output.dims.size() != lead.dims.size() || !fits(output, nullptr)) return false;
      for (size_t d = 0; d < output.sizes.size(); ++d) {
        if (output.dims[d].empty() && output.sizes[d] != -1 && output.sizes[d] != layout_->size[d]) return false;
      }
    }
    // A dim of one row is in no factor: that its output has one row too must be known.
    for (size_t k = 0; k < rule_.outputs.size(); ++k) {
      const Dims size = rules::output_shape(rule_, k);
      for (size_t d = 0; d < size.size(); ++d) {
        if (size[d] != layout_->size[d] && !(layout_->size[d] == 1 && size[d] == -1)) return false;
      }
    }
    elementwise_ = true;
    return true;
  }

  // Every dim that is cut is one factor, which the outputs have, too, or which is reduced in all of them.
  bool goes_by_factors() {
    factor_dims_.assign(rule_.factors.size(), kNotCut);
    if (dynamic_cast<const ShardedLayout*>(layout_.get()) == nullptr && !is_own()) return false;
    // What one rank has all of is as well reduced, or multiplied, by all.
    const bool is_cut = std::find(layout_->cut.begin(), layout_->cut.end(), true) != layout_->cut.end();
    if (!is_cut && !info_.is_view) return false;
    bool any_kept = false;
    for (size_t d = 0; d < layout_->cut.size(); ++d) {
      if (!layout_->cut[d]) continue;
      const auto& factors = rule_.inputs[lead_].dims[d];
      if (factors.size() != 1) return false;
      const auto f = static_cast<size_t>(factors[0]);
      if (rule_.factors[f].size != layout_->size[d] || factor_dims_[f] != kNotCut) return false;
      factor_dims_[f] = static_cast<int>(d);
      if (rule_.factors[f].kind == FactorKind::reduce && can_combine(rule_.factors[f].op)) {
        reduces_ = true;
        reduce_op_ = rule_.factors[f].op;
      } else if (rule_.factors[f].kind == FactorKind::pass) {
        any_kept = true;
      } else {
        return false;
      }
    }
    if (is_own() && !reduces_) return false;
    if (reduces_ && (any_kept || rule_.outputs.size() != 1 || info_.writes)) return false;
    for (const auto* operands : {&rule_.inputs, &rule_.outputs}) {
      for (const BoundOperand& operand : *operands) {
        if (operand.unused || operand.window) return false;
        for (const auto& dim : operand.dims) {
          if (dim.size() > 1 && std::any_of(dim.begin(), dim.end(), [&](int16_t f) { return cuts(f); })) return false;
        }
      }
    }
    for (const BoundOperand& output : rule_.outputs) {
      for (size_t f = 0; f < factor_dims_.size() && !reduces_; ++f) {
        const auto has = [&](const rules::DimFactors& dim) { return dim.size() == 1 && dim[0] == static_cast<int>(f); };
        if (factor_dims_[f] != kNotCut && !std::any_of(output.dims.begin(), output.dims.end(), has)) return false;
      }
    }
    return !info_.has_out;
  }

  static bool can_combine(ReduceOp op) {
    return op == ReduceOp::sum || op == ReduceOp::min || op == ReduceOp::max || op == ReduceOp::product;
  }
  bool cuts(int16_t factor) const { return factor_dims_[static_cast<size_t>(factor)] != kNotCut; }

  // The other tensors in boxes take the leading one's.
  bool align_others() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& tensor = tensors_[i].tensor;
      const BoxesMeta* meta = boxes_of(tensor);
      if (meta_of(tensor) != nullptr) {
        const auto* held = dynamic_cast<const HeldBoxes*>(layout_.get());
        if (held == nullptr || !elementwise_) return false;
        tensor = operand_in_boxes(info_, tensor, *held);
        continue;
      }
      if (i == lead_ || meta == nullptr) continue;
      if (elementwise_) {
        if (tensor.sizes() != at::IntArrayRef(layout_->size)) return false;
        tensor = aligned(info_.short_name(), tensor, layout_);
      } else if (meta->layout != layout_ || rule_.inputs[i].dims != rule_.inputs[lead_].dims) {
        return false;
      }
    }
    return true;
  }

  // The part of operand k that goes with a piece; without one, a tensor of the box's size.
  Tensor part(size_t k, const Box& box, std::optional<size_t> piece) const {
    const Tensor& tensor = tensors_[k].tensor;
    if (!tensor.defined()) return tensor;
    if (const BoxesMeta* meta = boxes_of(tensor)) {
      if (piece) return meta->pieces[*piece];
      return at::empty(box.size, at::TensorOptions(tensor.scalar_type()).device(tensor.device()));
    }
    Tensor result = tensor;
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const int dim = dim_of(rule_.inputs[k], static_cast<size_t>(d), tensor.dim());
      if (dim == kNotCut || tensor.size(d) != layout_->size[static_cast<size_t>(dim)]) continue;
      result = result.narrow(d, box.offset[static_cast<size_t>(dim)], box.size[static_cast<size_t>(dim)]);
    }
    return result;
  }

  // The dim of the leading tensor that a dim of an operand goes with; kNotCut where pieces hold all of it.
  int dim_of(const BoundOperand& operand, size_t d, int64_t ndim) const {
    if (elementwise_) return static_cast<int>(d + layout_->size.size() - static_cast<size_t>(ndim));
    const auto& factors = operand.dims[d];
    return factors.size() == 1 ? factor_dims_[static_cast<size_t>(factors[0])] : kNotCut;
  }

  Stack call_on(const Box& box, std::optional<size_t> piece) const {
    Stack call(stack_.begin() + static_cast<int64_t>(base_), stack_.end());
    for (size_t k = 0; k < tensors_.size(); ++k) put_tensor(call, tensors_[k], part(k, box, piece));
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      if (!info_.arguments[i].out || !call[i].isTensor()) continue;
      if (const BoxesMeta* meta = boxes_of(call[i].toTensor())) call[i] = meta->pieces[piece.value_or(0)];
    }
    for (const rules::SizeArgument& size : rule_.sizes) {
      Dims sizes = call[static_cast<size_t>(size.argument)].toIntVector();
      const BoundOperand& output = rule_.outputs[static_cast<size_t>(size.output)];
      for (size_t d = 0; d < sizes.size() && sizes.size() == output.dims.size(); ++d) {
        const int dim = dim_of(output, d, static_cast<int64_t>(sizes.size()));
        if (dim != kNotCut) sizes[d] = box.size[static_cast<size_t>(dim)];  // where it was left open, too
      }
      if (info_.name == "aten::new_empty_strided") {  // the order of dims in memory that the strides ask for
        call[2] = strides_like(sizes, call[1].toIntVector(), call[2].toIntVector());
      }
      call[static_cast<size_t>(size.argument)] = sizes;
    }
    for (const rules::IntArgument& number : rule_.ints) {
      const BoundOperand& input = rule_.inputs[static_cast<size_t>(number.input)];
      const int dim = dim_of(input, static_cast<size_t>(number.dim), static_cast<int64_t>(input.dims.size()));
      if (dim != kNotCut) call[static_cast<size_t>(number.argument)] = box.size[static_cast<size_t>(dim)];
    }
    return call;
  }

  // The k-th result as one device would make it, without data.
  Tensor example(size_t k) const {
    const auto results = run_without_data(op_, info_, stack_);
    if (results && (*results)[k].isTensor() && (*results)[k].toTensor().defined()) return (*results)[k].toTensor();
    return tensors_[lead_].tensor;
  }

  Tensor wrapped(size_t k, std::vector<Tensor> pieces) const {
    const BoxLayoutPtr layout = elementwise_ ? layout_ : mapped(k, pieces);
    const c10::ScalarType dtype = pieces.empty() ? dtype_of(k) : pieces.front().scalar_type();
    const c10::Device device = pieces.empty() ? asked_device() : pieces.front().device();
    return wrap_pieces(layout_on(layout, device), std::move(pieces), dtype, device);
  }

  // The dtype of a result without pieces: what the operator makes of nothing.
  c10::ScalarType dtype_of(size_t k) const {
    if (!elementwise_) return example(k).scalar_type();
    Stack call = call_on({Dims(layout_->size.size(), 0), Dims(layout_->size.size(), 0)}, std::nullopt);
    op_.callBoxed(call);
    return call[k].toTensor().scalar_type();
  }

  // Where a result without pieces would be.
  c10::Device asked_device() const {
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      if (stack_[base_ + i].isDevice()) return stack_[base_ + i].toDevice();
    }
    return tensors_[lead_].tensor.device();
  }

  static BoxLayoutPtr layout_on(const BoxLayoutPtr& layout, c10::Device device) {
    const auto* sharded = dynamic_cast<const ShardedLayout*>(layout.get());
    if (sharded == nullptr || sharded->device == device || sharded->device.type() == device.type()) return layout;
    return on_device(*sharded, device);
  }

  // The rectangles of an output whose dims are others than the leading tensor's.
  BoxLayoutPtr mapped(size_t k, const std::vector<Tensor>& pieces) const {
    const auto& from = static_cast<const ShardedLayout&>(*layout_);
    const BoundOperand& output = rule_.outputs[k];
    Dims size = rules::output_shape(rule_, k);
    std::vector<int> dims;
    for (size_t d = 0; d < size.size(); ++d) {
      dims.push_back(dim_of(output, d, static_cast<int64_t>(size.size())));
      if (size[d] == -1)
        size[d] = pieces.empty() ? example(k).size(static_cast<int64_t>(d)) : pieces[0].size(static_cast<int64_t>(d));
    }
    return make_layout("ShardedTensor", mapped_spec(from, size, dims), size, from.holders, true);
  }

  static sharded::ShardingSpec mapped_spec(const ShardedLayout& from, const Dims& size, const std::vector<int>& dims) {
    const auto* chunks = from.spec.as<sharded::ChunkShardingSpec>();
    if (chunks != nullptr && numel(chunks->shard(from.size, chunks->count() - 1).shard_sizes) > 0) {
      const auto to = std::find(dims.begin(), dims.end(), static_cast<int>(cut_dim(*chunks, from.size)));
      if (to != dims.end()) return sharded::ChunkShardingSpec(to - dims.begin(), chunks->placements());
    }
    std::vector<sharded::ShardMetadata> shards;
    for (const sharded::ShardMetadata& shard : from.spec.build_metadata(from.size).shards_metadata) {
      if (numel(shard.shard_sizes) == 0) continue;  // as their pieces are
      Dims offsets(size.size(), 0);
      Dims sizes = size;
      for (size_t d = 0; d < size.size(); ++d) {
        if (dims[d] == kNotCut) continue;
        offsets[d] = shard.shard_offsets[static_cast<size_t>(dims[d])];
        sizes[d] = shard.shard_sizes[static_cast<size_t>(dims[d])];
      }
      shards.emplace_back(std::move(offsets), std::move(sizes), shard.placement);
    }
    return sharded::EnumerableShardingSpec(std::move(shards));
  }

  // What all pieces of all ranks give together: the same on every rank.
  Tensor reduced(std::vector<Tensor> parts) const {
    const auto* layout = dynamic_cast<const ShardedLayout*>(layout_.get());
    Tensor sum;
    for (const Tensor& part : parts) sum = sum.defined() ? combined(sum, part) : part.contiguous().clone();
    if (!sum.defined()) sum = neutral(example(0), layout != nullptr ? layout->device : asked_device());
    if (layout != nullptr && layout->holders.group()) all_reduce(*layout->holders.group(), sum, reduce_op_).wait();
    return sum;
  }

  Tensor combined(const Tensor& a, const Tensor& b) const {
    switch (reduce_op_) {
      case ReduceOp::min:
        return at::minimum(a, b);
      case ReduceOp::max:
        return at::maximum(a, b);
      case ReduceOp::product:
        return a.scalar_type() == c10::kBool ? a.logical_and(b) : a * b;
      default:
        return a.scalar_type() == c10::kBool ? a.logical_or(b) : a + b;
    }
  }

  // What changes nothing in the reduction.
  Tensor neutral(const Tensor& like, c10::Device device) const {
    const auto options = like.options().device(device);
    const auto fill = [&](const at::Scalar& value) { return at::full(like.sizes(), value, options); };
    const c10::ScalarType dtype = like.scalar_type();
    if (reduce_op_ == ReduceOp::sum) return fill(0);
    if (reduce_op_ == ReduceOp::product) return fill(1);
    const bool lowest = reduce_op_ == ReduceOp::max;
    if (dtype == c10::kBool) return fill(!lowest);
    if (c10::isFloatingType(dtype)) {
      return fill(lowest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
    }
    return fill(lowest ? least_of(dtype) : greatest_of(dtype));
  }

  static int64_t greatest_of(c10::ScalarType dtype) {
    const int bits = static_cast<int>(c10::elementSize(dtype)) * 8;
    if (dtype == c10::kByte) return std::numeric_limits<uint8_t>::max();
    return bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  }
  static int64_t least_of(c10::ScalarType dtype) { return dtype == c10::kByte ? 0 : -greatest_of(dtype) - 1; }

  const c10::OperatorHandle& op_;
  const OpInfo& info_;
  Stack& stack_;
  const size_t base_;
  std::vector<CallTensor> tensors_;
  BoundRule rule_;
  size_t lead_ = 0;
  BoxLayoutPtr layout_;
  bool elementwise_ = false;
  FactorDims factor_dims_;  // where it is not element by element
  bool reduces_ = false;
  ReduceOp reduce_op_ = ReduceOp::sum;
};

}  // namespace

bool run_by_pieces(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  return PieceCall(op, info, stack).run();
}

}  // namespace sherd::detail
