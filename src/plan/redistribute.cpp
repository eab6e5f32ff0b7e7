#include "plan/redistribute.h"

#include <fmt/format.h>

#include "layout/bytes_text.h"
#include "plan/axis_groups.h"
#include "plan/draft.h"
#include "plan/moving_task.h"
#include "plan/places.h"
#include "plan/recount.h"

namespace sherd::plan {
namespace {

const char* name_of(Action action) {
  switch (action) {
    case Action::all_reduce:
      return "all_reduce";
    case Action::reduce_scatter:
      return "reduce_scatter";
    case Action::exchange:
      return "exchange";
    case Action::slice:
      return "slice";
    case Action::keep_one:
      return "keep_one";
    case Action::cross:
      return "exchange";
    case Action::reduce_to:
      return "reduce";
  }
  return "";
}

}  // namespace

Redistribution plan_redistribution(const Mesh& mesh, const Dims& shape, int64_t element_size, const Placements& from,
                                   const Placements& to, const PlanOptions& options) {
  // Where nothing is moved there is nothing to compare.
  const bool simple = options.prefer == Prefer::simple || sherd::numel(shape) == 0;
  std::vector<Dims> places = measured_places(mesh, simple ? 4 : 16, from, to);
  const bool all_measured = static_cast<int64_t>(places.size()) == mesh.size();
  const int64_t reduced_size = options.reduced_size > 0 ? options.reduced_size : element_size;
  const MovingTask task{mesh, shape,  element_size,  reduced_size,         from,
                        to,   places, options.costs, options.staging_bytes};
  if (simple) return simple_plan(task);
  Candidate fewest = best_plan(task, Prefer::bytes);
  const Held before(mesh, shape, from);
  constexpr int64_t kCounted = 64;
  constexpr int64_t kLookedAt = 256;
  const auto counted = [&](const Redistribution& plan) {
    return all_measured ? plan : recounted(plan, before, element_size, counted_places(mesh, kCounted));
  };
  // Where a plan wastes bytes at a place that was not measured, it is measured there, too. Each time a way is ruled
  // out. Where the rows do not divide, few places may be such.
  const bool uneven = is_uneven(mesh, shape, from) || is_uneven(mesh, shape, to);
  const std::vector<Dims> everywhere =
      all_measured ? std::vector<Dims>() : counted_places(mesh, uneven ? kLookedAt : kCounted);
  for (size_t left = everywhere.size(); left > 0; --left) {
    const auto place = wasteful_place(fewest.plan, before, everywhere);
    if (!place) break;
    places.push_back(*place);
    fewest = best_plan(task, Prefer::bytes);
  }
  fewest.plan = counted(fewest.plan);
  const bool small = sherd::numel(shape) * element_size < kSmallTensor;
  if (options.prefer == Prefer::bytes || (options.prefer == Prefer::automatic && !small)) return fewest.plan;
  Candidate fastest = best_plan(task, Prefer::latency);
  if (!is_less(fastest.seconds, fewest.seconds)) return fewest.plan;
  fastest.plan = counted(fastest.plan);
  fastest.plan.fewest_bytes = fewest.plan.bytes;
  fastest.plan.its_messages = fewest.plan.messages;
  return fastest.plan;
}

double seconds(const Redistribution& plan, const CommCosts& costs) {
  double total = 0;
  for (const Step& step : plan.steps) total += costs.seconds(step.messages, step.bytes);
  return total;
}

std::string bytes_text(int64_t bytes) { return detail::bytes_text(static_cast<double>(bytes)); }

std::string to_string(const Step& step, const Mesh& mesh) {
  std::string text = name_of(step.action);
  if (step.action == Action::cross || step.action == Action::reduce_to) text += " to " + sherd::to_string(mesh);
  for (const int64_t axis : step.axes) text += "@" + mesh.axis_label(axis);
  return text;
}

std::string to_string(const Redistribution& plan, const Mesh& mesh) {
  std::string text;
  for (const Step& step : plan.steps) {
    if (!text.empty()) text += ", ";
    text += to_string(step, mesh);
    if (step.bytes > 0) text += " " + bytes_text(step.bytes);
  }
  if (plan.bytes > plan.fewest_bytes) {
    text += fmt::format("; {} more than the fewest, for {} messages instead of {}",
                        bytes_text(plan.bytes - plan.fewest_bytes), plan.messages, plan.its_messages);
  }
  return text.empty() ? "nothing to do" : text;
}

}  // namespace sherd::plan
