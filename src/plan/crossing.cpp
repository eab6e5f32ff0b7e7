#include "plan/crossing.h"

#include <algorithm>
#include <map>

#include "plan/places.h"

namespace sherd::plan {
namespace {

bool stands_at(const Mesh& mesh, const Dims& place, int64_t rank) {
  const auto here = mesh.coordinate_of(rank);
  if (!here) return false;
  for (size_t axis = 0; axis < place.size(); ++axis) {
    if (place[axis] >= 0 && place[axis] != (*here)[axis]) return false;
  }
  return true;
}

// A Partial along an axis of one rank is the whole.
std::vector<int64_t> partial_axes(const Layout& layout) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < layout.mesh.ndim(); ++axis) {
    if (is_partial(layout.placements[static_cast<size_t>(axis)]) && layout.mesh.size(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

// The axes along which ranks want the same.
std::vector<int64_t> sharing_axes(const Layout& to) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < to.mesh.ndim(); ++axis) {
    if (!is_shard(to.placements[static_cast<size_t>(axis)]) && to.mesh.size(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

// Rows that lie at one place of the source and are wanted at one place of the target, and who reduces them: of those
// that want them the ranks that have a part of them, else all.
struct Meeting {
  Dims source;
  RunGrid rows;
  std::vector<Taker> reducers;  // each its share, in this order

  RunGrid share(size_t i) const {
    return share_of(rows, static_cast<int64_t>(reducers.size()), static_cast<int64_t>(i));
  }
};

class Reducing {
 public:
  Reducing(const Layout& from, const Layout& to, bool shared)
      : from_(from), to_(to), shared_(shared), partial_(partial_axes(from)) {
    for (const int64_t axis : partial_) parts_ *= static_cast<size_t>(from.mesh.size(axis));
  }

  size_t parts() const { return parts_; }

  // What lies at a place of the source.
  RunGrid rows_at(const Dims& source) const { return grid_at(from_, source); }

  // All meetings of the rank at a coordinate of the target, in an order that all ranks of its place know.
  std::vector<Meeting> meetings(const Dims& coordinate) const {
    std::vector<Meeting> result;
    const RunGrid wanted = grid_of(to_, coordinate);
    if (is_empty(wanted)) return result;
    const Dims target = place_of(to_, coordinate);
    for (Dims& source : places_touched(from_, wanted)) {
      RunGrid rows = intersect(rows_at(source), wanted);
      std::vector<Taker> who = shared_ ? reducers(source, target) : std::vector{taker_at(to_, coordinate)};
      result.push_back({std::move(source), std::move(rows), std::move(who)});
    }
    return result;
  }

  // The rank that gives part `c` of what lies at a place.
  int64_t giver_of(Dims source, size_t c, const Taker& taker) const {
    for (size_t i = partial_.size(); i-- > 0;) {
      const auto n = static_cast<size_t>(from_.mesh.size(partial_[i]));
      source[static_cast<size_t>(partial_[i])] = static_cast<int64_t>(c % n);
      c /= n;
    }
    return giver(from_.mesh, std::move(source), taker);
  }

  // What the rank at a coordinate of the source gives.
  std::vector<Transfer> gives(const Dims& coordinate) const {
    std::vector<Transfer> result;
    const RunGrid held = grid_of(from_, coordinate);
    if (is_empty(held)) return result;
    const int64_t rank = from_.mesh.rank_at(coordinate);
    Dims mine = place_of(from_, coordinate);
    const Dims place = mine;
    for (const int64_t axis : partial_) mine[static_cast<size_t>(axis)] = coordinate[static_cast<size_t>(axis)];
    for (const Dims& target : places_touched(to_, held)) {
      const auto give = [&](const Taker& reducer, RunGrid rows) {
        // A rank gives one part of one place: there is nothing else between it and the reducer.
        if (is_empty(rows) || giver(from_.mesh, mine, reducer) != rank) return;
        result.push_back({reducer.rank, 0, 0, std::move(rows)});
      };
      const RunGrid rows = intersect(held, grid_at(to_, target));
      if (!shared_) {
        for_each_replica(to_.mesh, target, [&](const Dims& there) { give(taker_at(to_, there), rows); });
        continue;
      }
      const Meeting meeting{place, rows, reducers(place, target)};
      for (size_t i = 0; i < meeting.reducers.size(); ++i) give(meeting.reducers[i], meeting.share(i));
    }
    return result;
  }

  std::vector<Taker> wanting(const Dims& target) const {
    std::vector<Taker> takers;
    for_each_replica(to_.mesh, target, [&](const Dims& there) { takers.push_back(taker_at(to_, there)); });
    return takers;
  }

 private:
  static RunGrid grid_at(const Layout& layout, Dims place) {
    for (int64_t& at : place) at = std::max<int64_t>(at, 0);
    return grid_of(layout, place);
  }

  std::vector<Taker> reducers(const Dims& source, const Dims& target) const {
    std::vector<Taker> all = wanting(target);
    std::vector<Taker> having;
    for (const Taker& taker : all) {
      if (stands_at(from_.mesh, source, taker.rank)) having.push_back(taker);
    }
    return having.empty() ? all : having;
  }

  const Layout& from_;
  const Layout& to_;
  const bool shared_;
  const std::vector<int64_t> partial_;
  size_t parts_ = 1;
};

// Adds what a step costs, given the elements that all measured ranks receive in it.
void add(Redistribution& plan, Step step, int64_t elements, int64_t element_size, size_t measured) {
  step.bytes = elements * element_size / static_cast<int64_t>(measured);
  plan.bytes += step.bytes;
  plan.messages += step.messages;
  plan.fewest_bytes = plan.bytes;
  plan.its_messages = plan.messages;
  plan.steps.push_back(std::move(step));
}

Redistribution exchanged(const Layout& from, const Layout& to, int64_t element_size, const std::vector<Dims>& places) {
  Redistribution plan;
  Step step{.action = Action::cross};
  int64_t elements = 0;
  for (const Dims& place : places) {
    const int64_t rank = to.mesh.rank_at(place);
    int64_t messages = 0;
    for (const Transfer& take : takes_of(from, {rank, 0, grid_of(to, place)}, taker_at(to, place).turn)) {
      if (take.rank == rank) continue;
      elements += numel(take.rows);
      ++messages;
    }
    step.messages = std::max(step.messages, messages);
  }
  add(plan, std::move(step), elements, element_size, places.size());
  return plan;
}

// The sizes of elements: of parts, and of what they come to.
struct ElementSizes {
  int64_t part = 0;
  int64_t result = 0;
};

Redistribution reduced(const Layout& from, const Layout& to, const ElementSizes& sizes, const std::vector<Dims>& places,
                       bool shared) {
  const Reducing reducing(from, to, shared);
  Redistribution plan;
  Step reduce{.action = Action::reduce_to};
  Step exchange{.action = Action::exchange, .axes = sharing_axes(to)};
  int64_t parts = 0;
  int64_t results = 0;
  for (const Dims& place : places) {
    const int64_t rank = to.mesh.rank_at(place);
    int64_t messages = 0;
    for (const Meeting& meeting : reducing.meetings(place)) {
      const auto me = std::ranges::find(meeting.reducers, rank, &Taker::rank);
      results += numel(meeting.rows);
      if (me == meeting.reducers.end()) continue;
      const int64_t mine = numel(meeting.share(static_cast<size_t>(me - meeting.reducers.begin())));
      const int64_t others =
          static_cast<int64_t>(reducing.parts()) - (stands_at(from.mesh, meeting.source, rank) ? 1 : 0);
      parts += others * mine;
      results -= mine;
      if (mine > 0) messages += others;
    }
    reduce.messages = std::max(reduce.messages, messages);
  }
  add(plan, std::move(reduce), parts, sizes.part, places.size());
  if (!shared) return plan;
  exchange.messages = 1;
  for (const int64_t axis : exchange.axes) exchange.messages *= to.mesh.size(axis);
  --exchange.messages;
  add(plan, std::move(exchange), results, sizes.result, places.size());
  return plan;
}

}  // namespace

Redistribution plan_crossing(const Layout& from, const Layout& to, int64_t element_size, const PlanOptions& options) {
  const std::vector<Dims> places = measured_places(to.mesh, 16, to.placements, to.placements);
  if (partial_axes(from).empty()) return exchanged(from, to, element_size, places);
  const ElementSizes sizes{options.reduced_size > 0 ? options.reduced_size : element_size, element_size};
  if (sharing_axes(to).empty()) return reduced(from, to, sizes, places, false);
  Redistribution fewest = reduced(from, to, sizes, places, true);
  const bool small = sherd::numel(from.shape) * element_size < kSmallTensor;
  if (options.prefer == Prefer::bytes || (options.prefer == Prefer::automatic && !small)) return fewest;
  // Everyone reduces all that it wants: more bytes, one call.
  Redistribution once = reduced(from, to, sizes, places, false);
  if (seconds(fewest, options.costs) <= seconds(once, options.costs)) return fewest;
  once.fewest_bytes = fewest.bytes;
  once.its_messages = fewest.messages;
  return once;
}

Contributions contributions(const Layout& from, const std::vector<RankPart>& to, int64_t rank) {
  const Reducing reducing(from, from, false);
  Contributions result{.parts = reducing.parts()};
  std::map<int64_t, int64_t> given;   // elements, by each rank
  std::map<int64_t, size_t> reduced;  // pieces, by each rank: both sides of a message put them into one order
  for (const RankPart& wanted : to) {
    if (is_empty(wanted.rows)) continue;
    for (const Dims& place : places_touched(from, wanted.rows)) {
      const RunGrid rows = intersect(reducing.rows_at(place), wanted.rows);
      const size_t piece = reduced[wanted.rank]++;
      if (wanted.rank == rank) result.pieces.push_back({wanted.number, rows});
      for (size_t c = 0; c < result.parts; ++c) {
        const int64_t giver = reducing.giver_of(place, c, {wanted.rank, wanted.rank});
        const size_t number = piece * result.parts + c;
        if (giver == rank) result.transfers.gives.push_back({wanted.rank, 0, number, rows});
        if (wanted.rank == rank) result.transfers.takes.push_back({giver, 0, number, rows});
        result.most_given = std::max(result.most_given, given[giver] += numel(rows));
      }
    }
  }
  result.transfers = sorted(std::move(result.transfers));
  return result;
}

Reductions reductions(const Layout& from, const Layout& to, int64_t rank, bool shared) {
  const Reducing reducing(from, to, shared);
  Reductions result{.parts = reducing.parts()};
  if (const auto here = from.mesh.coordinate_of(rank)) result.contributions.gives = reducing.gives(*here);
  if (const auto here = to.mesh.coordinate_of(rank)) {
    const std::vector<Taker> wanting = shared ? reducing.wanting(place_of(to, *here)) : std::vector<Taker>();
    for (const Meeting& meeting : reducing.meetings(*here)) {
      const size_t piece = result.pieces.size();
      result.pieces.emplace_back(std::max<size_t>(to.shape.size(), 1));  // no rows, of a scalar neither
      for (size_t i = 0; i < meeting.reducers.size(); ++i) {
        RunGrid rows = meeting.share(i);
        if (is_empty(rows)) continue;
        if (shared) result.results.takes.push_back({meeting.reducers[i].rank, piece, 0, rows});
        if (meeting.reducers[i].rank != rank) continue;
        for (size_t c = 0; c < result.parts; ++c) {
          result.contributions.takes.push_back(
              {reducing.giver_of(meeting.source, c, meeting.reducers[i]), 0, piece * result.parts + c, rows});
        }
        for (const Taker& taker : wanting) result.results.gives.push_back({taker.rank, piece, 0, rows});
        result.pieces.back() = std::move(rows);
      }
    }
  }
  result.contributions = sorted(std::move(result.contributions));
  result.results = sorted(std::move(result.results));
  return result;
}

}  // namespace sherd::plan
