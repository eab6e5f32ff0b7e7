#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/errors.h"
#include "sharded/layout.h"
#include "sharded/moves.h"
#include "sherd/sharded_modules.h"

namespace sherd::sharded {
namespace {

using at::Tensor;
using torch::nn::Module;

[[noreturn]] void refuse_name(const char* operation, const char* what, const std::string& name, const Module& module) {
  std::string names;
  for (const auto& item : module.named_parameters()) names += (names.empty() ? "" : ", ") + item.key();
  detail::throw_value_error(ErrorText(operation, fmt::format("the module has no such {}", what))
                                .fact("name", "\"" + name + "\"")
                                .fact("parameters", names.empty() ? "none" : names)
                                .help("a name of module.named_parameters() or named_modules()"));
}

Tensor find_parameter(const char* operation, const Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  const Tensor* found = parameters.find(name);
  if (found == nullptr || !found->defined()) refuse_name(operation, "parameter", name, module);
  return *found;
}

// "tower.fc" is the child fc of tower.
std::pair<std::string, std::string> parent_and_child(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::pair(std::string(), name)
                                  : std::pair(name.substr(0, dot), name.substr(dot + 1));
}

Module& find_module(const char* operation, Module& root, const std::string& name) {
  if (name.empty()) return root;
  Module* at = &root;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const auto children = at->named_children();
    const auto* child = children.find(name.substr(begin, end - begin));
    if (child == nullptr) refuse_name(operation, "module", name, root);
    at = child->get();
    begin = end + 1;
  }
  return *at;
}

bool is_inside(const std::string& parameter, const std::string& module) {
  return parameter.size() > module.size() && parameter.starts_with(module) && parameter[module.size()] == '.';
}

void check_plan(Module& module, const ShardingPlan& plan) {
  constexpr const char* kOperation = "shard_module";
  for (const auto& [name, entry] : plan.plan) {
    if (std::holds_alternative<ShardingSpec>(entry)) {
      find_parameter(kOperation, module, name);
      continue;
    }
    if (name.empty() || !std::get<std::shared_ptr<Sharder>>(entry)) {
      detail::throw_value_error(ErrorText(kOperation, "a Sharder needs the name of a child module")
                                    .fact("name", "\"" + name + "\"")
                                    .help("{{\"tower\", std::make_shared<MySharder>()}}"));
    }
    find_module(kOperation, module, name);
    for (const auto& [other, spec] : plan.plan) {
      if (!std::holds_alternative<ShardingSpec>(spec) || !is_inside(other, name)) continue;
      detail::throw_error(ErrorText(kOperation, "a parameter stands inside a module that has a Sharder")
                              .fact("parameter", other)
                              .fact("module", name)
                              .help("leave the parameter to the Sharder"));
    }
  }
}

// The plan as all ranks must have it, an entry per line.
std::string text_of(const ShardingPlan& plan) {
  std::string text;
  for (const auto& [name, entry] : plan.plan) {
    const auto* spec = std::get_if<ShardingSpec>(&entry);
    text += fmt::format("{}: {}\n", name, spec != nullptr ? to_string(*spec) : "a Sharder");
  }
  return text;
}

void put_in_place(Tensor& parameter, const Tensor& sharded) {
  const c10::NoGradGuard no_grad;
  parameter.set_data(sharded.detach());
}

void shard_in_place(Tensor parameter, const ShardingSpec& spec, int64_t src, const GroupOptions& options) {
  put_in_place(parameter, shard_tensor(parameter.detach(), spec, src, options));
}

}  // namespace

void shard_parameter(Module& module, const std::string& name, const ShardingSpec& spec, int64_t src,
                     const GroupOptions& options) {
  Tensor parameter;
  agree(options, "shard_parameter", [&] {
    parameter = find_parameter("shard_parameter", module, name);
    return std::string();  // shard_tensor compares the rest
  });
  shard_in_place(parameter, spec, src, options);
}

void shard_module(Module& module, const ShardingPlan& plan, int64_t src, const GroupOptions& options) {
  agree(options, "shard_module", [&] {
    check_plan(module, plan);
    return text_of(plan);
  });
  for (const auto& [name, entry] : plan.plan) {
    if (const auto* spec = std::get_if<ShardingSpec>(&entry)) {
      shard_in_place(find_parameter("shard_module", module, name), *spec, src, options);
      continue;
    }
    const auto [parent, child] = parent_and_child(name);
    Module& owner = find_module("shard_module", module, parent);
    const auto old = *owner.named_children().find(child);
    auto made = std::get<std::shared_ptr<Sharder>>(entry)->shard(old);
    if (made && made != old) owner.replace_module(child, std::move(made));
  }
}

Tensor shard_output(const ShardingPlan& plan, const std::string& name, const Tensor& output) {
  Tensor result = output;
  if (const auto found = plan.output_plan.find(name); found != plan.output_plan.end()) {
    result = ShardedTensor(output).reshard(found->second);
  }
  const auto& local = plan.return_local_tensor;
  if (std::find(local.begin(), local.end(), name) == local.end()) return result;
  return collect_local_shard(ShardedTensor(result));
}

std::map<std::string, Tensor> sharded_state_dict(const Module& module) {
  std::map<std::string, Tensor> state;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : list) {
      if (is_sharded_tensor(item.value())) state[item.key()] = item.value();
    }
  }
  return state;
}

void load_sharded_state_dict(Module& module, const std::map<std::string, Tensor>& state) {
  constexpr const char* kOperation = "load_sharded_state_dict";
  std::vector<std::pair<Tensor, Tensor>> changes;
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const auto& [name, tensor] : state) {
    const Tensor* found = parameters.find(name);
    if (found == nullptr) found = buffers.find(name);
    if (found == nullptr) refuse_name(kOperation, "parameter or buffer", name, module);
    detail::require_sharded(kOperation, tensor);
    if (found->sizes() != tensor.sizes()) {
      detail::throw_value_error(ErrorText(kOperation, "a tensor has another size than the module's")
                                    .fact("name", name)
                                    .fact("module", sherd::to_string(found->sizes().vec()))
                                    .fact("state", sherd::to_string(tensor.sizes().vec()))
                                    .help("a state of the same module"));
    }
    changes.emplace_back(*found, tensor);
  }
  for (auto& [place, tensor] : changes) put_in_place(place, tensor);
}

std::vector<std::pair<std::string, Tensor>> named_params_with_sharded_tensor(const Module& module) {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (const auto& item : module.named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

ShardedOptimizer::ShardedOptimizer(Parameters parameters, const Factory& make) : parameters_(std::move(parameters)) {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters_) {
    std::vector<Tensor> shards;
    if (const detail::BoxesMeta* meta = detail::boxes_of(parameter)) {
      for (const Tensor& piece : meta->pieces)
        shards.push_back(piece.detach().requires_grad_(parameter.requires_grad()));
    } else {
      shards.push_back(parameter);
    }
    all.insert(all.end(), shards.begin(), shards.end());
    shards_.push_back(std::move(shards));
  }
  optimizer_ = make(std::move(all));
}

void ShardedOptimizer::zero_grad(bool set_to_none) {
  for (auto& [name, parameter] : parameters_) {
    if (set_to_none) {
      parameter.mutable_grad() = Tensor();
    } else if (parameter.grad().defined()) {
      parameter.mutable_grad().detach_().zero_();
    }
  }
  optimizer_->zero_grad(set_to_none);
}

void ShardedOptimizer::step() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    if (!is_sharded_tensor(parameter)) continue;
    const Tensor grad = parameter.grad();
    const Tensor there =
        grad.defined() ? detail::brought_to(grad.detach(), detail::shared_layout(parameter)) : Tensor();
    for (size_t k = 0; k < shards_[i].size(); ++k) {
      shards_[i][k].mutable_grad() = there.defined() ? detail::boxes_of(there)->pieces[k] : Tensor();
    }
  }
  optimizer_->step();
}

std::map<std::string, Tensor> ShardedOptimizer::state_dict(const std::map<std::string, Getter>& names) const {
  std::map<std::string, Tensor> state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    for (const auto& [kept, get] : names) {
      std::vector<Tensor> pieces;
      for (const Tensor& shard : shards_[i]) {
        const auto found = optimizer_->state().find(shard.unsafeGetTensorImpl());
        if (found == optimizer_->state().end()) continue;
        pieces.push_back(get(*found->second));
      }
      if (pieces.size() != shards_[i].size()) continue;
      state[name + "." + kept] = is_sharded_tensor(parameter) ? detail::wrap_sharded(detail::shared_layout(parameter),
                                                                                     pieces, parameter.scalar_type())
                                                              : pieces.front();
    }
  }
  return state;
}

}  // namespace sherd::sharded
