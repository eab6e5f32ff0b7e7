// What must hold for every mesh, shape and placement, on random cases.

#include "sherd/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "property/random_layout.h"

namespace sherd {
namespace {

using testing::axis_cuts;
using testing::RandomLayout;

constexpr uint64_t kCases = 20000;

std::vector<int64_t> rows_of(const std::vector<Run>& runs) {
  std::vector<int64_t> rows;
  for (const Run& run : runs)
    for (int64_t row = run.offset; row < run.offset + run.size; ++row) rows.push_back(row);
  return rows;
}

// torch.chunk on an explicit list, filled up with empty lists.
std::vector<std::vector<int64_t>> chunk_list(const std::vector<int64_t>& list, int64_t count) {
  std::vector<std::vector<int64_t>> chunks(static_cast<size_t>(count));
  const size_t full = (list.size() + static_cast<size_t>(count) - 1) / static_cast<size_t>(count);
  for (size_t i = 0; i < list.size(); ++i) chunks[i / full].push_back(list[i]);
  return chunks;
}

// What the rank holds, by cutting lists of rows: the reference for the closed forms.
std::vector<int64_t> reference_rows(const Layout& layout, int64_t dim, const Dims& coordinate) {
  std::vector<int64_t> rows(static_cast<size_t>(layout.shape[static_cast<size_t>(dim)]));
  std::iota(rows.begin(), rows.end(), 0);
  int64_t piece = 0;
  for (size_t a = 0; a < layout.placements.size(); ++a) {
    const Placement& p = layout.placements[a];
    if (!is_shard(p) || sharded_dim(p) != dim) continue;
    const int64_t n = layout.mesh.axes()[a].size;
    const size_t i = static_cast<size_t>(coordinate[a]);
    piece = piece * n + coordinate[a];
    if (const auto* strided = std::get_if<StridedShard>(&p)) {
      std::vector<int64_t> mine;
      for (const auto& outer : chunk_list(rows, strided->split)) {
        const auto inner = chunk_list(outer, n)[i];
        mine.insert(mine.end(), inner.begin(), inner.end());
      }
      rows = mine;
    } else if (const auto* ragged = std::get_if<Ragged>(&p)) {
      const int64_t begin = ragged->cuts[static_cast<size_t>(piece)],
                    end = ragged->cuts[static_cast<size_t>(piece) + 1];
      std::erase_if(rows, [&](int64_t row) { return row < begin || row >= end; });
    } else {
      rows = chunk_list(rows, n)[i];
    }
  }
  return rows;
}

// The boxes of one rank out of each set of replicas.
std::vector<Box> boxes_of_first_replicas(const Layout& layout) {
  std::vector<Box> all;
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    const Dims coordinate = layout.mesh.coordinate_at(i);
    bool first = true;
    for (size_t a = 0; a < coordinate.size(); ++a) first = first && (axis_cuts(layout, a) || coordinate[a] == 0);
    if (!first) continue;
    for (Box& box : local_boxes(layout, coordinate)) all.push_back(std::move(box));
  }
  return all;
}

// How many boxes hold each element, in row-major order.
std::vector<int> coverage(std::span<const Box> boxes, const Dims& shape) {
  std::vector<int> counts(static_cast<size_t>(numel(shape)), 0);
  for (const Box& box : boxes) {
    if (numel(box) == 0) continue;
    Dims at = box.offset;
    while (true) {
      int64_t index = 0;
      for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
      ++counts[static_cast<size_t>(index)];
      size_t d = shape.size();
      while (d > 0 && ++at[d - 1] == box.offset[d - 1] + box.size[d - 1]) --d, at[d] = box.offset[d];
      if (d == 0) break;
    }
  }
  return counts;
}

bool is_accepted(const Layout& layout) {
  try {
    checked_placements("test", layout.mesh, layout.shape, layout.placements);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

TEST(LayoutProperty, BoxesTileTheShapeExactlyOnce) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    // A few cases with thousands of ranks.
    const Layout layout = RandomLayout(seed).layout(seed % 100 == 0 ? 3000 : 200);
    SCOPED_TRACE(testing::describe(layout));
    const auto boxes = boxes_of_first_replicas(layout);
    ASSERT_EQ(find_tiling_fault(boxes, layout.shape), std::nullopt);
    if (numel(layout.shape) > 20000) continue;
    for (int count : coverage(boxes, layout.shape)) ASSERT_EQ(count, 1);
  }
}

TEST(LayoutProperty, EveryReplicaHoldsTheSameBoxes) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Layout layout = RandomLayout(seed).layout();
    SCOPED_TRACE(testing::describe(layout));
    for (int64_t i = 0; i < layout.mesh.size(); ++i) {
      const Dims coordinate = layout.mesh.coordinate_at(i);
      Dims first = coordinate;
      for (size_t a = 0; a < first.size(); ++a)
        if (!axis_cuts(layout, a)) first[a] = 0;
      ASSERT_EQ(local_boxes(layout, coordinate), local_boxes(layout, first));
    }
  }
}

TEST(LayoutProperty, RunsAreWhatChunkingListsOfRowsGives) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomLayout random(seed);
    const Layout layout = random.layout(seed % 100 == 0 ? 3000 : 200);
    SCOPED_TRACE(testing::describe(layout));
    for (int64_t i = 0; i < std::min<int64_t>(layout.mesh.size(), 60); ++i) {
      const Dims coordinate = layout.mesh.coordinate_at(random.number(0, layout.mesh.size() - 1));
      for (size_t d = 0; d < layout.shape.size(); ++d) {
        const auto runs = local_runs(layout, static_cast<int64_t>(d), coordinate);
        ASSERT_EQ(rows_of(runs), reference_rows(layout, static_cast<int64_t>(d), coordinate)) << "dim " << d;
        for (const auto& run : runs) ASSERT_GT(run.size, 0);
        for (size_t r = 1; r < runs.size(); ++r) ASSERT_GT(runs[r].offset, runs[r - 1].offset + runs[r - 1].size);
      }
    }
  }
}

TEST(LayoutProperty, ShapeOffsetBoxesAndRowsAgreeWithTheRuns) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomLayout random(seed);
    const Layout layout = random.layout();
    SCOPED_TRACE(testing::describe(layout));
    for (int64_t i = 0; i < std::min<int64_t>(layout.mesh.size(), 20); ++i) {
      const Dims coordinate = layout.mesh.coordinate_at(random.number(0, layout.mesh.size() - 1));
      const Dims shape = local_shape(layout, coordinate), offset = local_offset(layout, coordinate);
      std::vector<Box> boxes = {{}};
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t dim = static_cast<int64_t>(d);
        const auto runs = local_runs(layout, dim, coordinate);
        const auto rows = rows_of(runs);
        ASSERT_EQ(shape[d], static_cast<int64_t>(rows.size()));
        ASSERT_EQ(offset[d], rows.empty() ? layout.shape[d] : rows.front());
        for (size_t r = 0; r < rows.size(); ++r)
          ASSERT_EQ(global_row(layout, dim, coordinate, static_cast<int64_t>(r)), rows[r]);
        std::vector<Box> longer;
        for (const Box& box : boxes) {
          for (const auto& run : runs) {
            longer.push_back(box);
            longer.back().offset.push_back(run.offset);
            longer.back().size.push_back(run.size);
          }
        }
        boxes = longer;
      }
      ASSERT_EQ(local_boxes(layout, coordinate), boxes);
    }
  }
}

TEST(LayoutProperty, HolderOfFindsTheRankThatHoldsTheRow) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Layout layout = RandomLayout(seed).layout();
    SCOPED_TRACE(testing::describe(layout));
    for (size_t d = 0; d < layout.shape.size(); ++d) {
      const int64_t dim = static_cast<int64_t>(d);
      for (int64_t row = 0; row < layout.shape[d]; ++row) {
        const Holder holder = holder_of(layout, dim, row);
        Dims coordinate = holder.coordinate;
        for (size_t a = 0; a < coordinate.size(); ++a) {
          ASSERT_EQ(coordinate[a] >= 0, axis_cuts(layout, a) && sharded_dim(layout.placements[a]) == dim);
          coordinate[a] = std::max<int64_t>(coordinate[a], 0);
        }
        ASSERT_GT(holder.end, row);
        ASSERT_LE(holder.end, layout.shape[d]);
        for (int64_t next = row; next < holder.end; ++next)
          ASSERT_EQ(global_row(layout, dim, coordinate, holder.local_row + next - row), next);
      }
    }
  }
}

TEST(LayoutProperty, SameBoxesIsWhatComparingEveryRankSays) {
  int64_t same = 0, different_text = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomLayout random(seed);
    const Layout a = random.layout(30);
    Layout b = a;
    // Mostly small changes, so that equal layouts that are written differently turn up.
    if (random.chance(20)) {
      b.placements = random.placements(b.mesh, b.shape);
    } else {
      const size_t axis = static_cast<size_t>(random.number(0, b.mesh.ndim() - 1));
      if (is_shard(b.placements[axis]))
        b.placements[axis] = StridedShard(sharded_dim(b.placements[axis]), random.number(1, 2));
      else
        b.placements[axis] = Replicate();
    }
    SCOPED_TRACE(testing::describe(a) + " and " + to_string(b.placements));
    if (!is_accepted(b)) continue;  // a Ragged to the right no longer fits
    bool expected = true;
    for (size_t i = 0; i < a.placements.size(); ++i)
      if ((is_partial(a.placements[i]) || is_partial(b.placements[i])) && a.mesh.axes()[i].size > 1)
        expected = expected && a.placements[i] == b.placements[i];
    for (int64_t i = 0; i < a.mesh.size(); ++i)
      for (size_t d = 0; d < a.shape.size(); ++d)
        expected = expected && reference_rows(a, static_cast<int64_t>(d), a.mesh.coordinate_at(i)) ==
                                   reference_rows(b, static_cast<int64_t>(d), a.mesh.coordinate_at(i));
    ASSERT_EQ(same_boxes(a, b), expected);
    same += expected;
    different_text += expected && a.placements != b.placements;
  }
  EXPECT_GT(same, 3000);
  EXPECT_GT(different_text, 2000);
}

TEST(LayoutProperty, CheckedPlacementsAcceptsWhatFitsAndMakesDimsPositive) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Layout layout = RandomLayout(seed).layout();
    SCOPED_TRACE(testing::describe(layout));
    Placements negative = layout.placements;
    const int64_t ndim = static_cast<int64_t>(layout.shape.size());
    for (Placement& p : negative) {
      if (auto* shard = std::get_if<Shard>(&p)) shard->dim -= ndim;
      if (auto* strided = std::get_if<StridedShard>(&p)) strided->dim -= ndim;
      if (auto* ragged = std::get_if<Ragged>(&p)) ragged->dim -= ndim;
    }
    ASSERT_EQ(checked_placements("test", layout.mesh, layout.shape, layout.placements), layout.placements);
    ASSERT_EQ(checked_placements("test", layout.mesh, layout.shape, negative), layout.placements);
  }
}

TEST(LayoutProperty, CheckedPlacementsRefusesCutsThatDoNotFit) {
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomLayout random(seed);
    const Layout layout = random.layout(60);
    for (size_t a = 0; a < layout.placements.size(); ++a) {
      Placements changed = layout.placements;
      auto* ragged = std::get_if<Ragged>(&changed[a]);
      if (!ragged) continue;
      ragged->cuts[static_cast<size_t>(random.number(0, static_cast<int64_t>(ragged->cuts.size()) - 1))] += 1;
      Layout broken{layout.mesh, layout.shape, changed};
      SCOPED_TRACE(testing::describe(broken));
      // The reference: the pieces, taken as they stand, must still be a part of what the axes to the left leave,
      // and all of them together the whole dim.
      bool fits = std::is_sorted(ragged->cuts.begin(), ragged->cuts.end()) && ragged->cuts.front() == 0 &&
                  ragged->cuts.back() == layout.shape[static_cast<size_t>(ragged->dim)];
      for (size_t right = a + 1; right < changed.size(); ++right) broken.placements[right] = Replicate();
      for (int64_t i = 0; fits && i < broken.mesh.size(); ++i) {
        const Dims at = broken.mesh.coordinate_at(i);
        const auto rows = reference_rows(broken, ragged->dim, at);
        fits = rows_of(local_runs(broken, ragged->dim, at)) == rows;
      }
      const bool accepted = is_accepted({layout.mesh, layout.shape, changed});
      // A Ragged further right can be broken by the change, too.
      const bool others = std::any_of(changed.begin() + static_cast<int64_t>(a) + 1, changed.end(),
                                      [](const auto& p) { return std::holds_alternative<Ragged>(p); });
      if (!others || !fits) {
        ASSERT_EQ(accepted, fits);
      }
      refused += !accepted;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(LayoutProperty, TextsParseBackToTheSameValue) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Layout layout = RandomLayout(seed).layout();
    SCOPED_TRACE(testing::describe(layout));
    ASSERT_EQ(parse_mesh(to_string(layout.mesh)), layout.mesh);
    ASSERT_EQ(parse_dims(to_string(layout.shape)), layout.shape);
    ASSERT_EQ(parse_placements(to_string(layout.placements)), layout.placements);
    for (const Placement& p : layout.placements) ASSERT_EQ(parse_placement(to_string(p)), p);
    for (const Box& box : local_boxes(layout, layout.mesh.coordinate_at(0))) ASSERT_EQ(parse_box(to_string(box)), box);
    const TensorText tensor{"f32", layout.shape, layout.placements};
    ASSERT_EQ(parse_tensor(to_string(tensor, layout.mesh), layout.mesh), tensor) << to_string(tensor, layout.mesh);
  }
}

// A set of boxes with something wrong with it, or not: cut a shape at random, then move, drop or repeat a box.
std::vector<Box> random_boxes(RandomLayout& random, const Dims& shape) {
  std::vector<Box> boxes = {{Dims(shape.size(), 0), shape}};
  for (int64_t cuts = shape.empty() ? 0 : random.number(0, 12); cuts > 0; --cuts) {
    const size_t i = static_cast<size_t>(random.number(0, static_cast<int64_t>(boxes.size()) - 1));
    const size_t d = static_cast<size_t>(random.number(0, static_cast<int64_t>(shape.size()) - 1));
    Box left = boxes[i], right = boxes[i];
    left.size[d] = random.number(0, left.size[d]);
    right.offset[d] += left.size[d];
    right.size[d] -= left.size[d];
    boxes[i] = left;
    boxes.push_back(right);
  }
  const size_t i = static_cast<size_t>(random.number(0, static_cast<int64_t>(boxes.size()) - 1));
  switch (random.number(0, 5)) {
    case 0:
      boxes.erase(boxes.begin() + static_cast<int64_t>(i));
      break;
    case 1:
      boxes.push_back(boxes[i]);
      break;
    case 2:
      for (size_t d = 0; d < shape.size(); ++d) boxes[i].offset[d] += random.number(-1, 1);
      break;
    case 3:
      for (size_t d = 0; d < shape.size(); ++d) boxes[i].size[d] += random.number(-1, 1);
      break;
    default:
      break;
  }
  std::shuffle(boxes.begin(), boxes.end(), random.random());
  return boxes;
}

TEST(TilingProperty, FaultsAreWhatCountingElementsFinds) {
  std::map<TilingFault::Kind, int> found;
  int right = 0;
  for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
    RandomLayout random(seed);
    Dims shape;
    for (int64_t d = random.number(0, 3); d > 0; --d) shape.push_back(random.number(0, 7));
    const auto boxes = random_boxes(random, shape);
    std::string trace = to_string(shape);
    for (const Box& box : boxes) trace += " " + to_string(box);
    SCOPED_TRACE(trace);
    const Box whole{Dims(shape.size(), 0), shape};
    const auto fault = find_tiling_fault(boxes, shape);
    const auto is_outside = [&](const Box& box) {
      for (int64_t size : box.size)
        if (size < 0) return true;
      return !contains(whole, box);
    };
    if (std::any_of(boxes.begin(), boxes.end(), is_outside)) {
      ASSERT_TRUE(fault && fault->kind == TilingFault::Kind::outside);
      ASSERT_TRUE(is_outside(boxes[fault->first]));
      ASSERT_EQ(fault->box, boxes[fault->first]);
      ++found[fault->kind];
      continue;
    }
    const auto counts = coverage(boxes, shape);
    const bool exact = std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
    ASSERT_EQ(!fault.has_value(), exact);
    right += exact;
    if (!fault) continue;
    ++found[fault->kind];
    if (fault->kind == TilingFault::Kind::overlap) {
      ASSERT_NE(fault->first, fault->second);
      ASSERT_EQ(intersect(boxes[fault->first], boxes[fault->second]), fault->box);
    } else {
      ASSERT_EQ(fault->kind, TilingFault::Kind::hole);
      ASSERT_GT(numel(fault->box), 0);
      ASSERT_TRUE(contains(whole, fault->box));
      for (const Box& box : boxes) ASSERT_EQ(intersect(box, fault->box), std::nullopt);
    }
  }
  EXPECT_GT(right, 1000);
  EXPECT_GT(found[TilingFault::Kind::outside], 1000);
  EXPECT_GT(found[TilingFault::Kind::overlap], 500);
  EXPECT_GT(found[TilingFault::Kind::hole], 500);
}

TEST(MeshProperty, CoordinatesAndRanksAreInverse) {
  for (uint64_t seed = 0; seed < kCases / 3; ++seed) {
    const Mesh mesh = RandomLayout(seed).mesh(300);
    SCOPED_TRACE(to_string(mesh));
    const auto ranks = mesh.ranks();
    ASSERT_EQ(static_cast<int64_t>(ranks.size()), mesh.size());
    for (int64_t i = 0; i < mesh.size(); ++i) {
      const Dims coordinate = mesh.coordinate_at(i);
      ASSERT_EQ(mesh.rank_at(coordinate), ranks[static_cast<size_t>(i)]);
      ASSERT_EQ(mesh.coordinate_of(ranks[static_cast<size_t>(i)]), coordinate);
    }
  }
}

TEST(MeshProperty, SlicesThroughARankHoldItAndKeepItsPlace) {
  for (uint64_t seed = 0; seed < kCases / 3; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(100);
    SCOPED_TRACE(to_string(mesh));
    std::vector<int64_t> axes(static_cast<size_t>(mesh.ndim()));
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random.random());
    axes.resize(static_cast<size_t>(random.number(0, mesh.ndim())));
    const int64_t rank = mesh.ranks()[static_cast<size_t>(random.number(0, mesh.size() - 1))];
    const Dims place = *mesh.coordinate_of(rank);
    const Mesh part = mesh.slice(axes, rank);
    ASSERT_EQ(part.ndim(), static_cast<int64_t>(axes.size()));
    const auto in_part = part.coordinate_of(rank);
    ASSERT_TRUE(in_part);
    for (size_t a = 0; a < axes.size(); ++a) ASSERT_EQ((*in_part)[a], place[static_cast<size_t>(axes[a])]);
    ASSERT_EQ(parse_mesh(to_string(part)), part);
    // Every rank of the slice differs from `rank` along its axes only.
    for (int64_t other : part.ranks()) {
      const Dims there = *mesh.coordinate_of(other);
      for (int64_t a = 0; a < mesh.ndim(); ++a) {
        if (std::find(axes.begin(), axes.end(), a) != axes.end()) continue;
        ASSERT_EQ(there[static_cast<size_t>(a)], place[static_cast<size_t>(a)]);
      }
    }
  }
}

TEST(MeshProperty, UnflattenUndoesFlatten) {
  for (uint64_t seed = 0; seed < kCases / 3; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(300);
    SCOPED_TRACE(to_string(mesh));
    const int64_t first = random.number(0, mesh.ndim() - 1), count = random.number(1, mesh.ndim() - first);
    const Mesh flat = mesh.flatten(first, count, mesh.has_names() ? "flat" : "");
    ASSERT_EQ(flat.ndim(), mesh.ndim() - count + 1);
    ASSERT_EQ(flat.ranks(), mesh.ranks());
    const auto begin = mesh.axes().begin() + first;
    ASSERT_EQ(flat.unflatten(first, {begin, begin + count}), mesh);
  }
}

}  // namespace
}  // namespace sherd
