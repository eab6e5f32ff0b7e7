#include <stdexcept>

#include "plan/along.h"
#include "plan/crossing.h"
#include "plan/placement_lists.h"
#include "plan/redistribute.h"
#include "sherd/error.h"
#include "sherd/explain.h"

namespace sherd {
namespace {

void check_same_tensor(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh) {
  if (from.shape == to.shape && from.dtype == to.dtype) return;
  throw std::invalid_argument(ErrorText("redistribute", "a tensor keeps its shape and its type when it is moved")
                                  .fact("from", to_string(from, mesh))
                                  .fact("to", to_string(to, to_mesh))
                                  .help(to_string(TensorText{from.dtype, from.shape, to.placements}, to_mesh)));
}

plan::PlanOptions options_of(const PlanPreferences& preferences) {
  plan::PlanOptions options{.prefer = plan::Prefer::automatic, .costs = preferences.costs};
  if (preferences.prefer == PlanPreferences::Prefer::bytes) options.prefer = plan::Prefer::bytes;
  if (preferences.prefer == PlanPreferences::Prefer::latency) options.prefer = plan::Prefer::latency;
  return options;
}

}  // namespace

std::string explain_redistribution(const TensorText& from, const TensorText& to, const Mesh& mesh,
                                   const PlanPreferences& preferences) {
  check_same_tensor(from, mesh, to, mesh);
  const Placements before = checked_placements("redistribute", mesh, from.shape, from.placements);
  const Placements after = checked_placements("redistribute", mesh, to.shape, to.placements);
  const auto plan = plan::plan_redistribution(mesh, from.shape, plan::element_size(from.dtype), before, after,
                                              options_of(preferences));
  return to_string(plan, mesh);
}

std::string explain_redistribution(const TensorText& from, const Mesh& mesh, const TensorText& to, const Mesh& to_mesh,
                                   const PlanPreferences& preferences) {
  if (mesh == to_mesh) return explain_redistribution(from, to, mesh, preferences);
  check_same_tensor(from, mesh, to, to_mesh);
  const Layout before{mesh, from.shape, checked_placements("redistribute", mesh, from.shape, from.placements)};
  const Layout after{to_mesh, to.shape, checked_placements("redistribute", to_mesh, to.shape, to.placements)};
  if (after.placements != plan::without_partials(after.placements)) {
    throw std::invalid_argument(
        ErrorText("redistribute", "a tensor cannot be made Partial on another mesh")
            .fact("to", to_string(to, to_mesh))
            .help(to_string(TensorText{to.dtype, to.shape, plan::without_partials(to.placements)}, to_mesh)));
  }
  return to_string(plan::plan_crossing(before, after, plan::element_size(from.dtype), options_of(preferences)),
                   to_mesh);
}

}  // namespace sherd
