#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "comm/errors.h"
#include "parallel/named_modules.h"
#include "parallel/place.h"
#include "parallel/same_modules.h"
#include "parallel/style_effects.h"
#include "sherd/dtensor.h"
#include "sherd/tensor_parallel.h"
#include "tensor/wishes.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::Effect;
using detail::NamedModule;
using detail::throw_value_error;

constexpr const char* kOperation = "parallelize_module";

// A style and a module that it was given to.
struct Match {
  NamedModule module;
  const ParallelStyle* style = nullptr;
};

void check_mesh(const DeviceMesh& mesh) {
  if (mesh.ndim() == 1) return;
  const std::string axis = mesh.mesh().has_names() ? mesh.mesh().axes().back().name : "";
  throw_value_error(ErrorText(kOperation, "the mesh must have one axis")
                        .fact("mesh", to_string(mesh))
                        .help(axis.empty() ? "name the axes of the mesh, and pass mesh[\"tp\"]"
                                           : fmt::format("parallelize_module(module, mesh[\"{}\"], plan)", axis)));
}

std::string some_names(const std::vector<NamedModule>& modules) {
  constexpr size_t kMost = 12;
  std::vector<std::string> names;
  for (const NamedModule& module : modules) {
    if (!module.name.empty() && names.size() <= kMost) names.push_back(module.name);
  }
  if (names.size() > kMost) names.back() = "...";
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::vector<Match> match(const std::vector<NamedModule>& modules, const ParallelPlan& plan) {
  std::vector<Match> matches;
  for (const auto& [pattern, style] : plan) {
    bool found = false;
    for (const NamedModule& module : modules) {
      if (!detail::name_matches(pattern, module.name)) continue;
      found = true;
      // The same style by two entries, or for a module that stands in two places, is given once.
      const bool known = std::any_of(matches.begin(), matches.end(), [&](const Match& other) {
        return other.module.module == module.module && *other.style == style;
      });
      if (!known) matches.push_back({module, &style});
    }
    if (found) continue;
    throw_value_error(ErrorText(kOperation, "the plan names no module")
                          .fact("name", pattern)
                          .fact("style", name_of(style))
                          .fact("modules", some_names(modules))
                          .help("names are those of named_modules(); * stands for characters between two dots"));
  }
  return matches;
}

void check_one_style(const std::vector<Match>& matches) {
  std::map<const torch::nn::Module*, const Match*> placed;
  for (const Match& found : matches) {
    if (!detail::places_parameters(*found.style)) continue;
    const auto [other, fresh] = placed.emplace(found.module.module, &found);
    if (fresh) continue;
    throw_value_error(ErrorText(kOperation, "a module has two styles")
                          .fact("module", found.module.name.empty() ? "the module itself" : found.module.name)
                          .fact("styles", detail::text_of(*other->second->style) + "\n" + detail::text_of(*found.style))
                          .help("one style that places parameters for each module, and any PrepareModule*"));
  }
}

// A parameter may be on the mesh, replicated, from an earlier call.
void check_free(const Effect& effect, const DeviceMesh& mesh) {
  if (!is_dtensor(effect.tensor) || detail::is_born_on(effect.tensor, mesh)) return;
  const DeviceMesh there = mesh_of(effect.tensor);
  const std::optional<size_t> axis = detail::axis_in(there, mesh);
  const bool used = axis && (!is_replicate(placements_of(effect.tensor)[*axis]) || detail::wishes_of(effect.tensor));
  if (used) {
    throw_value_error(ErrorText(kOperation, fmt::format("mesh axis {} is used twice", there.mesh().axis_label(*axis)))
                          .fact("parameter", effect.name)
                          .fact("it is", to_string(effect.tensor))
                          .help("give a module a style once for each axis; sherd::redistribute moves a tensor"));
  }
  if (there == mesh) return;
  throw_value_error(ErrorText(kOperation, "the parameter is distributed over another mesh already")
                        .fact("parameter", effect.name)
                        .fact("it is", to_string(effect.tensor))
                        .fact("asked", "axis " + mesh.mesh().axis_label(0))
                        .help("parallelize_module first, then what distributes over the other axes"));
}

// A tensor with what all modules that use it want of it.
struct Placed {
  Effect effect;
  std::string style;
  detail::Wishes wishes;
};

std::string text_of(const Placement& placement, const std::string& style) {
  return fmt::format("{} ({})", to_string(placement), style);
}

void join(Placed& placed, const Effect& effect, const std::string& style) {
  bool fits = placed.effect.placement == effect.placement;
  const auto take = [&](std::optional<detail::Wish>& into, const std::optional<detail::Wish>& from) {
    if (into && from && !(*into == *from)) fits = false;
    if (from) into = from;
  };
  take(placed.wishes.product, effect.product);
  take(placed.wishes.lookup, effect.lookup);
  take(placed.wishes.norm, effect.norm);
  if (fits) return;
  throw_value_error(ErrorText(kOperation, "two modules share a parameter and their styles differ")
                        .fact(placed.effect.name, text_of(placed.effect.placement, placed.style))
                        .fact(effect.name, text_of(effect.placement, style))
                        .help("styles that place it alike: RowwiseParallel for an embedding, ColwiseParallel for the "
                              "linear layer that shares its weight"));
}

}  // namespace

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan) {
  check_mesh(mesh);
  std::vector<std::string> lines;
  for (const auto& [name, style] : plan) lines.push_back(fmt::format("plan {} {}", name, detail::text_of(style)));
  detail::compare_modules(kOperation, outline_of(module), mesh, lines);

  const std::vector<NamedModule> modules = detail::modules_below(module);
  const std::vector<Match> matches = match(modules, plan);
  check_one_style(matches);
  std::vector<Placed> placed;
  std::map<const c10::TensorImpl*, size_t> known;
  std::vector<std::pair<const torch::nn::Module*, detail::CallWish>> calls;
  for (const Match& found : matches) {
    const auto same_module = [&](const Match& other) { return other.module.module == found.module.module; };
    const bool alone = std::count_if(matches.begin(), matches.end(), same_module) == 1;
    detail::Effects effects = detail::effects_of(*found.style, found.module, mesh, alone);
    const std::string style = detail::text_of(*found.style);
    for (Effect& effect : effects.tensors) {
      check_free(effect, mesh);
      const auto [place, fresh] = known.emplace(effect.tensor.unsafeGetTensorImpl(), placed.size());
      if (fresh) {
        placed.push_back({effect, style, {mesh, effect.name, effect.product, effect.lookup, effect.norm}});
      } else {
        join(placed[place->second], effect, style);
      }
    }
    if (!effects.call) continue;
    detail::require_callable(kOperation, *found.module.module);
    calls.emplace_back(found.module.module, std::move(*effects.call));
  }

  for (Placed& each : placed) {
    detail::place(each.effect.tensor, mesh, {each.effect.placement});
    const detail::Wishes& wishes = each.wishes;
    if (wishes.product || wishes.lookup || wishes.norm) {
      detail::set_wishes(each.effect.tensor, std::make_shared<detail::Wishes>(wishes));
    }
  }
  // The others are replicated, so that an optimizer has DTensors alone and every gradient comes out whole.
  const auto replicate = [&](const auto& tensors) {
    for (const auto& item : tensors) {
      Tensor tensor = item.value();
      const bool waits = tensor.defined() && (!is_dtensor(tensor) || detail::is_born_on(tensor, mesh));
      if (waits) detail::place(tensor, mesh, {Replicate()});
    }
  };
  replicate(module.named_parameters());
  replicate(module.named_buffers());
  for (auto& [whose, wish] : calls) detail::add_call_wish(*whose, std::move(wish));
}

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelStyle& style) {
  parallelize_module(module, mesh, ParallelPlan{{"", style}});
}

ParallelPlan transformer_layer_plan(const std::string& prefix, const TransformerPlanOptions& options) {
  const auto named = [&](const char* name) { return prefix.empty() ? std::string(name) : prefix + "." + name; };
  const Placement between = options.sequence_parallel ? Placement(Shard(options.sequence_dim)) : Placement(Replicate());
  ParallelPlan plan = {{named("*attn"), AttentionParallel{.output_layouts = between}},
                       {named("linear1"), ColwiseParallel()},
                       {named("linear2"), RowwiseParallel{.output_layouts = between}}};
  if (options.sequence_parallel) {
    plan.emplace_back(named("norm*"), SequenceParallel{.sequence_dim = options.sequence_dim});
  }
  return plan;
}

}  // namespace sherd
