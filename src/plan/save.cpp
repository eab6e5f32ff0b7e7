#include "plan/save.h"

#include <algorithm>

namespace sherd::plan {
namespace {

// A chunk that several ranks hold, waiting for its writer.
struct Shared {
  int64_t bytes;
  size_t tensor;
  size_t chunk;
  size_t first;  // its holders in `Planner::holders_`
  size_t count;
};

class Planner {
 public:
  Planner(std::span<const SavedTensor> tensors, int64_t ranks) : tensors_(tensors) {
    plan_.tensors.resize(tensors.size());
    plan_.bytes.assign(static_cast<size_t>(ranks), 0);
  }

  SavePlan plan() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (const auto* listed = std::get_if<ListedTensor>(&tensors_[i].held)) {
        for (const HeldBox& held : listed->boxes) add(i, held.box.offset, held.box.size, held.holders);
      } else {
        add_layout(i, std::get<LaidOutTensor>(tensors_[i].held));
      }
    }
    give_out_shared();
    return std::move(plan_);
  }

 private:
  void add(size_t tensor, std::span<const int64_t> offset, std::span<const int64_t> size,
           std::span<const int32_t> holders) {
    WrittenChunks& chunks = plan_.tensors[tensor];
    chunks.numbers.insert(chunks.numbers.end(), offset.begin(), offset.end());
    chunks.numbers.insert(chunks.numbers.end(), size.begin(), size.end());
    int64_t bytes = tensors_[tensor].element_bytes;
    for (const int64_t rows : size) bytes *= rows;
    if (holders.size() > 1) {
      shared_.push_back({bytes, tensor, chunks.writers.size(), holders_.size(), holders.size()});
      holders_.insert(holders_.end(), holders.begin(), holders.end());
      chunks.writers.push_back(-1);
      return;
    }
    chunks.writers.push_back(holders.empty() ? -1 : holders.front());
    if (!holders.empty()) plan_.bytes[static_cast<size_t>(holders.front())] += bytes;
  }

  // The boxes are the products of the rows that the coordinates have of each dim, so that these are asked for dim by
  // dim: the work of a box is then a few additions.
  void add_layout(size_t tensor, const LaidOutTensor& held);

  void give_out_shared() {
    std::stable_sort(shared_.begin(), shared_.end(),
                     [](const Shared& a, const Shared& b) { return a.bytes > b.bytes; });
    for (const Shared& chunk : shared_) {
      const auto holders = std::span(holders_).subspan(chunk.first, chunk.count);
      const int32_t writer = *std::min_element(holders.begin(), holders.end(), [&](int32_t a, int32_t b) {
        return plan_.bytes[static_cast<size_t>(a)] < plan_.bytes[static_cast<size_t>(b)];
      });
      plan_.tensors[chunk.tensor].writers[chunk.chunk] = writer;
      plan_.bytes[static_cast<size_t>(writer)] += chunk.bytes;
    }
  }

  std::span<const SavedTensor> tensors_;
  SavePlan plan_;
  std::vector<Shared> shared_;
  std::vector<int32_t> holders_;
};

// The rows that the ranks have of one dim: by the place along the axes that cut it, in row-major order of these.
struct CutDim {
  std::vector<size_t> axes;
  std::vector<std::vector<Run>> runs;
};

CutDim cut_dim(const Layout& layout, size_t dim) {
  CutDim cut;
  int64_t places = 1;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    if (sharded_dim(layout.placements[axis]) != static_cast<int64_t>(dim)) continue;
    cut.axes.push_back(axis);
    places *= layout.mesh.size(static_cast<int64_t>(axis));
  }
  Dims coordinate(layout.placements.size(), 0);
  for (int64_t place = 0; place < places; ++place) {
    int64_t rest = place;
    for (size_t i = cut.axes.size(); i-- > 0;) {
      const int64_t count = layout.mesh.size(static_cast<int64_t>(cut.axes[i]));
      coordinate[cut.axes[i]] = rest % count;
      rest /= count;
    }
    cut.runs.push_back(local_runs(layout, static_cast<int64_t>(dim), coordinate));
  }
  return cut;
}

// Counts through `sizes`, the last fastest; false after the last.
bool next(Dims& at, const Dims& sizes) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++at[i] < sizes[i]) return true;
    at[i] = 0;
  }
  return false;
}

// The ranks along the axes that do not cut, at each coordinate of those that do.
class HolderList {
 public:
  HolderList(const LaidOutTensor& held) : held_(held) {
    const Mesh& mesh = held.layout->mesh;
    const size_t axes = held.layout->placements.size();
    Dims strides(axes, 1);
    for (size_t axis = axes; axis-- > 1;) strides[axis - 1] = strides[axis] * mesh.size(static_cast<int64_t>(axis));
    if (!mesh.has_default_ranks()) ranks_ = mesh.ranks();
    Dims free_strides;
    for (size_t axis = 0; axis < axes; ++axis) {
      const bool cuts = is_shard(held.layout->placements[axis]);
      axis_strides_.push_back(strides[axis]);
      if (cuts) continue;
      free_sizes_.push_back(mesh.size(static_cast<int64_t>(axis)));
      free_strides.push_back(strides[axis]);
    }
    Dims at(free_sizes_.size(), 0);
    do {
      int64_t index = 0;
      for (size_t i = 0; i < at.size(); ++i) index += at[i] * free_strides[i];
      copies_.push_back(index);
    } while (next(at, free_sizes_));
  }

  int64_t stride(size_t axis) const { return axis_strides_[axis]; }

  /// Of the place `index` in the mesh whose coordinates along the axes that do not cut are 0.
  std::span<const int32_t> at(int64_t index) {
    found_.clear();
    for (const int64_t copy : copies_) {
      const auto place = static_cast<size_t>(index + copy);
      const int64_t rank = ranks_.empty() ? static_cast<int64_t>(place) : ranks_[place];
      const int32_t member = held_.place_of_rank.empty() ? static_cast<int32_t>(rank)
                                                         : (rank < static_cast<int64_t>(held_.place_of_rank.size())
                                                                ? held_.place_of_rank[static_cast<size_t>(rank)]
                                                                : -1);
      if (member >= 0) found_.push_back(member);
    }
    return found_;
  }

 private:
  const LaidOutTensor& held_;
  std::vector<int64_t> ranks_;
  Dims axis_strides_;
  Dims free_sizes_;
  std::vector<int64_t> copies_;
  std::vector<int32_t> found_;
};

void Planner::add_layout(size_t tensor, const LaidOutTensor& held) {
  const Layout& layout = *held.layout;
  const size_t ndim = layout.shape.size();
  HolderList holders(held);
  const Dims zeros(ndim, 0);
  if (numel(layout.shape) == 0) {
    const auto ranks = holders.at(0);
    add(tensor, zeros, layout.shape, ranks.empty() ? ranks : ranks.first(1));
    return;
  }
  std::vector<CutDim> dims;
  Dims places;
  for (size_t dim = 0; dim < ndim; ++dim) {
    dims.push_back(cut_dim(layout, dim));
    places.push_back(static_cast<int64_t>(dims.back().runs.size()));
  }
  Dims at(ndim, 0);
  Dims run(ndim, 0);
  Dims runs(ndim, 0);
  Dims offset(ndim);
  Dims size(ndim);
  do {
    int64_t index = 0;
    bool empty = false;
    for (size_t dim = 0; dim < ndim; ++dim) {
      const CutDim& cut = dims[dim];
      int64_t rest = at[dim];
      for (size_t i = cut.axes.size(); i-- > 0;) {
        const int64_t count = layout.mesh.size(static_cast<int64_t>(cut.axes[i]));
        index += rest % count * holders.stride(cut.axes[i]);
        rest /= count;
      }
      runs[dim] = static_cast<int64_t>(cut.runs[static_cast<size_t>(at[dim])].size());
      empty = empty || runs[dim] == 0;
    }
    if (empty) continue;
    const auto ranks = holders.at(index);
    std::fill(run.begin(), run.end(), 0);
    do {
      for (size_t dim = 0; dim < ndim; ++dim) {
        const Run& rows = dims[dim].runs[static_cast<size_t>(at[dim])][static_cast<size_t>(run[dim])];
        offset[dim] = rows.offset;
        size[dim] = rows.size;
      }
      add(tensor, offset, size, ranks);
    } while (next(run, runs));
  } while (next(at, places));
}

}  // namespace

SavePlan plan_save(std::span<const SavedTensor> tensors, int64_t ranks) { return Planner(tensors, ranks).plan(); }

}  // namespace sherd::plan
