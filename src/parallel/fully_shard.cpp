#include <fnmatch.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>

#include "comm/errors.h"
#include "parallel/data_axes.h"
#include "parallel/gradient_sync.h"
#include "parallel/units.h"
#include "sherd/data_parallel.h"
#include "tensor/meta.h"

namespace sherd {
namespace {

using detail::DataAxisPlan;

// The name of the module that owns a parameter: "blocks.0.up" of "blocks.0.up.weight".
std::string owner_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// Which unit every module belongs to.
class UnitNames {
 public:
  UnitNames(torch::nn::Module& module, const std::vector<std::string>& patterns) : patterns_(patterns) {
    matched_.assign(patterns.size(), false);
    for (const auto& item : module.named_modules("", /*include_self=*/true)) names_.push_back(item.key());
    for (const auto& item : module.named_modules("", /*include_self=*/true)) {
      const bool list = item.value()->as<torch::nn::ModuleListImpl>() != nullptr;
      const bool row = item.value()->as<torch::nn::SequentialImpl>() != nullptr;
      if (!list && !row) continue;
      for (const auto& child : item.value()->named_children()) {
        const std::string name = item.key().empty() ? child.key() : item.key() + "." + child.key();
        (list ? elements_of_lists_ : elements_of_rows_).push_back(name);
      }
    }
    for (size_t i = 0; i < patterns_.size(); ++i) {
      for (const std::string& name : names_) {
        matched_[i] = matched_[i] || fnmatch(patterns_[i].c_str(), name.c_str(), 0) == 0;
      }
      if (matched_[i]) continue;
      detail::throw_value_error(
          ErrorText("fully_shard", "no module has this name")
              .fact("unit", patterns_[i])
              .fact("modules", first_names())
              .help("FullyShardOptions{.units = {\"blocks.*\"}}: names as named_modules() gives them"));
    }
  }

  std::string unit_of(const std::string& parameter) const {
    const std::string owner = owner_of(parameter);
    const std::string chosen = outermost(owner, [&](const std::string& name) {
      for (const std::string& pattern : patterns_) {
        if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
      }
      return false;
    });
    if (!chosen.empty() || !patterns_.empty()) return chosen.empty() ? owner : chosen;
    for (const auto* elements : {&elements_of_lists_, &elements_of_rows_}) {
      const std::string element = outermost(owner, [&](const std::string& name) {
        return std::find(elements->begin(), elements->end(), name) != elements->end();
      });
      if (!element.empty()) return element;
    }
    return owner;
  }

 private:
  // The shortest prefix of a module's path that `is` one.
  template <class Is>
  static std::string outermost(const std::string& path, const Is& is) {
    for (size_t dot = path.find('.'); !path.empty(); dot = path.find('.', dot + 1)) {
      const std::string name = path.substr(0, dot);
      if (is(name)) return name;
      if (dot == std::string::npos) break;
    }
    return "";
  }

  std::string first_names() const {
    std::string text;
    for (size_t i = 0; i < names_.size() && i < 8; ++i) {
      if (!names_[i].empty()) text += (text.empty() ? "" : ", ") + names_[i];
    }
    return text + (names_.size() > 8 ? ", ..." : "");
  }

  std::vector<std::string> patterns_;
  std::vector<bool> matched_;
  std::vector<std::string> names_;
  std::vector<std::string> elements_of_lists_;
  std::vector<std::string> elements_of_rows_;
};

// Says along which axes operators get the parameter whole.
void mark(const DataAxisPlan& plan, bool even_alone) {
  uint64_t gathers = 0;
  for (int64_t axis = 0; axis < plan.mesh.ndim(); ++axis) {
    const bool cut = is_shard(plan.placements[static_cast<size_t>(axis)]);
    if ((plan.data_axes >> axis & 1) != 0 && cut && (plan.mesh.size(axis) > 1 || even_alone)) {
      gathers |= uint64_t{1} << axis;
    }
  }
  detail::DTensorMeta* meta = detail::meta_of(plan.tensor);
  const detail::Spec& spec = *meta->spec;
  meta->spec = detail::intern_spec(spec.mesh, spec.placements, spec.sizes, spec.strides, nullptr, gathers);
}

}  // namespace

GradientSyncHandle fully_shard(torch::nn::Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  const UnitNames names(module, options.units);
  const auto plans = detail::plan_data_axes("fully_shard", module, mesh, /*shards=*/true);
  detail::put_on_data_axes(plans, options.source);
  detail::replicate_buffers(module, mesh, options.source);
  auto sync = std::make_shared<detail::GradientSync>(options.mixed_precision.reduce_dtype);
  auto units =
      std::make_shared<detail::Units>(detail::Units::Options{.dtype = options.mixed_precision.param_dtype,
                                                             .keep_until_backward = !options.reshard_after_forward,
                                                             .prefetch = options.prefetch});

  // Parameters of one unit and one mesh, in the order in which they come first.
  std::vector<std::string> order;
  std::map<std::string, std::vector<const DataAxisPlan*>> by_unit;
  for (const DataAxisPlan& plan : plans) {
    mark(plan, options.mixed_precision.param_dtype.has_value());
    const std::string key = names.unit_of(plan.name) + " " + to_string(plan.mesh);
    auto& unit = by_unit[key];
    if (unit.empty()) order.push_back(key);
    unit.push_back(&plan);
  }
  for (const std::string& key : order) {
    std::vector<at::Tensor> gathered;
    std::vector<detail::GradientSync::Member> reduced;
    for (const DataAxisPlan* plan : by_unit[key]) {
      if (detail::meta_of(plan->tensor)->spec->gathers != 0) gathered.push_back(plan->tensor);
      if (plan->tensor.requires_grad()) reduced.push_back({plan->tensor, plan->data_axes});
    }
    if (!gathered.empty()) units->add_unit(gathered);
    if (!reduced.empty()) sync->add_bucket(reduced);
  }
  sync->on_end([units] { units->release(); });  // which keeps them, too
  return GradientSyncHandle(std::move(sync));
}

}  // namespace sherd
