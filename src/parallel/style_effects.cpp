#include "parallel/style_effects.h"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr const char* kOperation = "parallelize_module";

template <class... Kinds>
bool is_one_of(const nn::Module& module) {
  return ((dynamic_cast<const Kinds*>(&module) != nullptr) || ...);
}
bool is_linear(const nn::Module& module) { return is_one_of<nn::LinearImpl>(module); }
bool is_embedding(const nn::Module& module) { return is_one_of<nn::EmbeddingImpl>(module); }
bool is_norm(const nn::Module& module) {
  return is_one_of<nn::LayerNormImpl, nn::GroupNormImpl, nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                   nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(module);
}

// What forward uses: where a weight was tied by `head->weight = embedding->weight`, the module's list has the old one.
Tensor used_by(const nn::Module& module, const std::string& name) {
  if (const auto* linear = dynamic_cast<const nn::LinearImpl*>(&module)) {
    return name == "weight" ? linear->weight : name == "bias" ? linear->bias : Tensor();
  }
  if (const auto* embedding = dynamic_cast<const nn::EmbeddingImpl*>(&module)) {
    return name == "weight" ? embedding->weight : Tensor();
  }
  const auto own = module.named_parameters(/*recurse=*/false);
  const Tensor* tensor = own.find(name);
  return tensor != nullptr ? *tensor : Tensor();
}

class Maker {
 public:
  Maker(const ParallelStyle& style, const NamedModule& module, const DeviceMesh& mesh, bool alone)
      : style_(style), module_(module), mesh_(mesh), alone_(alone) {}

  Effects operator()(const ColwiseParallel& style) {
    const Wish wish{style.input_layouts, Replicate(), style.output_layouts};
    if (is_linear(*module_.module)) {
      add(module_, "weight", Shard(0)).product = wish;
      add(module_, "bias", Shard(0));
    } else if (is_embedding(*module_.module)) {
      add(module_, "weight", Shard(1)).lookup = wish;
    } else {
      refuse("torch::nn::Linear, torch::nn::Embedding");
    }
    return finish(style.use_local_output);
  }

  Effects operator()(const RowwiseParallel& style) {
    if (is_linear(*module_.module)) {
      add(module_, "weight", Shard(1)).product = {style.input_layouts, Shard(-1), style.output_layouts};
      add(module_, "bias", Replicate());
    } else if (is_embedding(*module_.module)) {
      add(module_, "weight", Shard(0)).lookup = {style.input_layouts, Replicate(), style.output_layouts};
    } else {
      refuse("torch::nn::Linear, torch::nn::Embedding");
    }
    return finish(style.use_local_output);
  }

  Effects operator()(const SequenceParallel& style) {
    const Placement cut = Shard(style.sequence_dim);
    const bool rides = ride({style.input_layouts, cut, cut});
    Effects effects = finish(style.use_local_output);
    if (rides) return effects;
    if (!effects.call) effects.call = call_wish();
    effects.call->inputs = {.plain = {style.input_layouts}, .desired = {cut}};
    effects.call->outputs = {.desired = {cut}, .local = style.use_local_output};
    return effects;
  }

  Effects operator()(const AttentionParallel& style) {
    const auto* attention = dynamic_cast<const nn::MultiheadAttentionImpl*>(module_.module);
    if (attention == nullptr) refuse("torch::nn::MultiheadAttention");
    const Wish in{style.input_layouts, Replicate(), std::nullopt};
    // Rows of the queries, the keys and the values, each cut by heads.
    add(module_, "in_proj_weight", StridedShard(0, 3)).product = in;
    add(module_, "in_proj_bias", StridedShard(0, 3));
    for (const char* name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
      add(module_, name, Shard(0)).product = in;
    }
    add(module_, "bias_k", Shard(2));
    add(module_, "bias_v", Shard(2));
    const NamedModule out{module_.of("out_proj"), attention->out_proj.ptr().get()};
    add(out, "weight", Shard(1)).product = {std::nullopt, Shard(-1), style.output_layouts};
    add(out, "bias", Replicate());
    return finish(style.use_local_output);
  }

  Effects operator()(const PrepareModuleInput& style) {
    return prepare({style.input_layouts, style.desired_input_layouts, true, style.use_local_output}, {});
  }
  Effects operator()(const PrepareModuleOutput& style) {
    return prepare({}, {style.output_layouts, style.desired_output_layouts, true, style.use_local_output});
  }
  Effects operator()(const PrepareModuleInputOutput& style) {
    return prepare({style.input_layouts, style.desired_input_layouts, true, style.use_local_input},
                   {style.output_layouts, style.desired_output_layouts, true, style.use_local_output});
  }

 private:
  // The module's own tensor of that name; nothing happens where it has none.
  Effect& add(const NamedModule& owner, const std::string& name, const Placement& placement) {
    const Tensor tensor = used_by(*owner.module, name);
    if (!tensor.defined()) return none_ = {};
    return effects_.tensors.emplace_back(Effect{owner.of(name), tensor, placement});
  }

  // The wish rides on the weight, replicated as all the module's own parameters are. False where no operator of ours
  // may come to see it.
  bool ride(const Wish& wish) {
    bool found = false;
    for (const auto& item : module_.module->named_parameters(/*recurse=*/false)) {
      Effect& effect = add(module_, item.key(), Replicate());
      if (item.key() != "weight" || !item.value().defined()) continue;
      effect.product = effect.lookup = effect.norm = wish;
      found = true;
    }
    return found && (is_linear(*module_.module) || is_embedding(*module_.module) || is_norm(*module_.module));
  }

  Effects prepare(CallSide inputs, CallSide outputs) {
    for (const CallSide* side : {&inputs, &outputs}) {
      if (side->plain.size() == side->desired.size()) continue;
      throw_value_error(ErrorText(kOperation, "there must be one desired layout for each layout")
                            .fact("style", name_of(style_))
                            .fact("module", module_text())
                            .fact("layouts", std::to_string(side->plain.size()))
                            .fact("desired", std::to_string(side->desired.size()))
                            .help("PrepareModuleInput{.input_layouts = {Shard(0)}, .desired_input_layouts = "
                                  "{Replicate()}}"));
    }
    inputs.every = !inputs.desired.empty();
    outputs.every = !outputs.desired.empty();
    if (alone_) {
      const auto first = [](const ArgumentLayouts& list) { return list.empty() ? std::nullopt : list[0]; };
      ride({first(inputs.plain), first(inputs.desired), first(outputs.desired)});
    }
    effects_.call = call_wish();
    effects_.call->inputs = std::move(inputs);
    effects_.call->outputs = std::move(outputs);
    return std::move(effects_);
  }

  CallWish call_wish() const { return {fmt::format("{} of {}", name_of(style_), module_text()), mesh_}; }

  Effects finish(bool local) {
    if (local) {
      effects_.call = call_wish();
      effects_.call->outputs.local = true;
    }
    return std::move(effects_);
  }

  std::string module_text() const {
    return fmt::format("{} ({})", module_.name.empty() ? "the module itself" : module_.name, module_.module->name());
  }

  [[noreturn]] void refuse(const char* takes) const {
    throw_value_error(ErrorText(kOperation, "the style cannot take this module")
                          .fact("style", name_of(style_))
                          .fact("module", module_text())
                          .fact("it takes", takes)
                          .help("name the linear layers inside it, or place its parameters by distribute_module"));
  }

  const ParallelStyle& style_;
  const NamedModule& module_;
  const DeviceMesh& mesh_;
  const bool alone_;
  Effects effects_;
  Effect none_;
};

std::string text_of(const std::optional<Placement>& placement) { return placement ? to_string(*placement) : "any"; }

std::string text_of(const ArgumentLayouts& layouts) {
  std::string text;
  for (const auto& layout : layouts) text += (text.empty() ? "" : " ") + text_of(layout);
  return text;
}

struct Texts {
  template <class Style>
  std::string operator()(const Style& s) const {
    return fmt::format("plain input {}, output {}{}", text_of(s.input_layouts), to_string(s.output_layouts),
                       s.use_local_output ? ", local" : "");
  }
  std::string operator()(const SequenceParallel& s) const {
    return fmt::format("dim {}, plain input {}{}", s.sequence_dim, text_of(s.input_layouts),
                       s.use_local_output ? ", local" : "");
  }
  std::string operator()(const PrepareModuleInput& s) const {
    return fmt::format("{} -> {}{}", text_of(s.input_layouts), text_of(s.desired_input_layouts),
                       s.use_local_output ? ", local" : "");
  }
  std::string operator()(const PrepareModuleOutput& s) const {
    return fmt::format("{} -> {}{}", text_of(s.output_layouts), text_of(s.desired_output_layouts),
                       s.use_local_output ? ", local" : "");
  }
  std::string operator()(const PrepareModuleInputOutput& s) const {
    return (*this)(PrepareModuleInput{s.input_layouts, s.desired_input_layouts, s.use_local_input}) + "; " +
           (*this)(PrepareModuleOutput{s.output_layouts, s.desired_output_layouts, s.use_local_output});
  }
};

}  // namespace

bool places_parameters(const ParallelStyle& style) {
  return std::holds_alternative<ColwiseParallel>(style) || std::holds_alternative<RowwiseParallel>(style) ||
         std::holds_alternative<SequenceParallel>(style) || std::holds_alternative<AttentionParallel>(style);
}

std::string text_of(const ParallelStyle& style) { return name_of(style) + ": " + std::visit(Texts(), style); }

Effects effects_of(const ParallelStyle& style, const NamedModule& module, const DeviceMesh& mesh, bool alone) {
  return std::visit(Maker(style, module, mesh, alone), style);
}

}  // namespace sherd::detail

namespace sherd {

std::string name_of(const ParallelStyle& style) {
  static constexpr const char* kNames[] = {
      "ColwiseParallel",    "RowwiseParallel",     "SequenceParallel",         "AttentionParallel",
      "PrepareModuleInput", "PrepareModuleOutput", "PrepareModuleInputOutput",
  };
  static_assert(std::size(kNames) == std::variant_size_v<ParallelStyle>);
  return kNames[style.index()];
}

}  // namespace sherd
