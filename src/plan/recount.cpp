#include "plan/recount.h"

#include <algorithm>

namespace sherd::plan {
namespace {

// What is held before the first step, and after each.
std::vector<Held> stops_of(const Redistribution& plan, const Held& before) {
  std::vector<Held> stops = {before};
  for (const Step& step : plan.steps) {
    Held next = stops.back();
    next.become(step.after, step.cut);
    stops.push_back(std::move(next));
  }
  return stops;
}

bool is_exchange(const Step& step) { return step.action == Action::exchange; }

}  // namespace

std::optional<Dims> wasteful_place(const Redistribution& plan, const Held& before, const std::vector<Dims>& places) {
  const auto first = std::find_if(plan.steps.begin(), plan.steps.end(), is_exchange);
  if (std::count_if(first, plan.steps.end(), is_exchange) < 2) return std::nullopt;
  const std::vector<Held> stops = stops_of(plan, before);
  const auto begin = static_cast<size_t>(first - plan.steps.begin());
  for (const Dims& place : places) {
    int64_t received = 0;
    RunGrid held = stops[begin].grid(place);
    const int64_t lacked = missing(held, stops.back().grid(place));
    for (size_t i = begin + 1; i < stops.size(); ++i) {
      RunGrid next = stops[i].grid(place);
      received += missing(held, next);
      held = std::move(next);
    }
    if (received > lacked) return place;
  }
  return std::nullopt;
}

Redistribution recounted(Redistribution plan, const Held& before, int64_t element_size,
                         const std::vector<Dims>& places) {
  const std::vector<Held> stops = stops_of(plan, before);
  plan.bytes = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    Step& step = plan.steps[i];
    if (is_exchange(step)) {
      int64_t elements = 0;
      for (const Dims& place : places) elements += missing(stops[i].grid(place), stops[i + 1].grid(place));
      step.bytes = elements * element_size / static_cast<int64_t>(places.size());
    }
    plan.bytes += step.bytes;
  }
  plan.fewest_bytes = plan.bytes;
  return plan;
}

}  // namespace sherd::plan
