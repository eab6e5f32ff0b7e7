#include "sherd/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "layout/scanner.h"
#include "sherd/error.h"

namespace sherd {
namespace {

constexpr std::string_view kHelp = "[dp=2, tp=4], [2, 4] without names, [dp=2, tp=2]{0, 2, 4-5} for other ranks";
// A text that lists more ranks than this is taken for a mistake, before memory is.
constexpr int64_t kMaxListedRanks = int64_t{1} << 20;
constexpr size_t kBriefRanks = 16;

// The first sentence of the error that these axes deserve; "" where they are right.
std::string axes_problem(const std::vector<MeshAxis>& axes) {
  int64_t size = 1;
  for (size_t a = 0; a < axes.size(); ++a) {
    const MeshAxis& axis = axes[a];
    if (axis.size < 1)
      return fmt::format("axis {} has size {}", axis.name.empty() ? std::to_string(a) : axis.name, axis.size);
    if (__builtin_mul_overflow(size, axis.size, &size)) return "the number of ranks does not fit in 64 bits";
    if (axis.name.empty() != axes.front().name.empty()) return "some axes have names and some have none";
    if (axis.name.empty()) continue;
    if (!detail::is_name(axis.name)) return fmt::format("\"{}\" cannot be an axis name", axis.name);
    for (size_t b = 0; b < a; ++b)
      if (axes[b].name == axis.name) return fmt::format("two axes are called {}", axis.name);
  }
  return "";
}

std::string ranks_problem(int64_t size, const std::vector<int64_t>& ranks) {
  if (static_cast<int64_t>(ranks.size()) != size)
    return fmt::format("{} rank{} for a mesh of {}", ranks.size(), ranks.size() == 1 ? "" : "s", size);
  for (int64_t rank : ranks)
    if (rank < 0) return fmt::format("rank {} is negative", rank);
  if (std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>())) return "";
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  return twice == sorted.end() ? "" : fmt::format("overlapping ranks: rank {} stands at two places", *twice);
}

std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::string text = "[";
  for (const MeshAxis& axis : axes)
    fmt::format_to(std::back_inserter(text), "{}{}{}{}", text.size() > 1 ? ", " : "", axis.name,
                   axis.name.empty() ? "" : "=", axis.size);
  return text + "]";
}

// "{0, 2, 4-5}"; at most `limit` ranks or runs of ranks.
std::string ranks_text(const std::vector<int64_t>& ranks, size_t limit) {
  std::string text = "{";
  size_t shown = 0;
  for (size_t i = 0; i < ranks.size();) {
    text.append(i ? ", " : "");
    if (shown++ == limit) return text + "...}";
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] > ranks[end - 1] && ranks[end] - 1 == ranks[end - 1]) ++end;
    fmt::format_to(std::back_inserter(text), "{}", ranks[i]);
    if (end > i + 1) fmt::format_to(std::back_inserter(text), "-{}", ranks[end - 1]);
    i = end;
  }
  return text + "}";
}

std::string axis_list(const Mesh& mesh) {
  std::vector<std::string> labels;
  for (int64_t a = 0; a < mesh.ndim(); ++a) labels.push_back(mesh.axis_label(a));
  return labels.empty() ? "none" : fmt::format("{}", fmt::join(labels, ", "));
}

void check_axis(std::string_view operation, const Mesh& mesh, int64_t axis) {
  if (axis >= 0 && axis < mesh.ndim()) return;
  throw std::invalid_argument(ErrorText(operation, fmt::format("there is no axis {}", axis))
                                  .fact("mesh", to_string(mesh))
                                  .help(fmt::format("axes are numbered from 0 to {}", mesh.ndim() - 1)));
}

std::vector<int64_t> scan_ranks(detail::Scanner& scan, int64_t limit) {
  std::vector<int64_t> ranks;
  do {
    const size_t place = scan.place();
    const int64_t first = scan.number("a rank");
    const int64_t last = scan.accept('-') ? scan.number("the last rank of the run") : first;
    if (first < 0) scan.fail_at(place, fmt::format("rank {} is negative", first));
    if (last < first) scan.fail_at(place, "the run of ranks ends before it begins");
    if (last - first >= limit - static_cast<int64_t>(ranks.size()))
      scan.fail_at(place, fmt::format("more ranks than the {} that can stand here", limit));
    for (int64_t i = 0; i <= last - first; ++i) ranks.push_back(first + i);
  } while (scan.accept(','));
  return ranks;
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (const std::string problem = axes_problem(axes_); !problem.empty())
    throw std::invalid_argument(
        ErrorText("Mesh", problem).fact("axes", axes_text(axes_)).help("Mesh({{\"dp\", 2}, {\"tp\", 4}})"));
  for (const MeshAxis& axis : axes_) size_ *= axis.size;
}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<int64_t> ranks) : Mesh(std::move(axes)) {
  if (const std::string problem = ranks_problem(size_, ranks); !problem.empty())
    throw std::invalid_argument(ErrorText("Mesh", problem)
                                    .fact("axes", axes_text(axes_))
                                    .fact("ranks", ranks_text(ranks, kBriefRanks))
                                    .help("Mesh({{\"dp\", 2}, {\"tp\", 2}}, {0, 1, 2, 3})"));
  bool in_order = true;
  for (size_t i = 0; i < ranks.size() && in_order; ++i) in_order = ranks[i] == static_cast<int64_t>(i);
  if (!in_order) ranks_ = std::move(ranks);
}

Dims Mesh::shape() const {
  Dims sizes;
  sizes.reserve(axes_.size());
  for (const MeshAxis& axis : axes_) sizes.push_back(axis.size);
  return sizes;
}

std::optional<int64_t> Mesh::find_axis(std::string_view name) const {
  if (!has_names()) return std::nullopt;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (axes_[a].name == name) return static_cast<int64_t>(a);
  return std::nullopt;
}

int64_t Mesh::axis(std::string_view name) const {
  if (const auto found = find_axis(name)) return *found;
  const std::string problem = fmt::format("there is no axis called \"{}\"", name);
  if (!has_names())
    throw std::invalid_argument(ErrorText("axis", problem)
                                    .fact("mesh", to_string(*this) + ", whose axes have no names")
                                    .help("Mesh({{\"dp\", 2}, {\"tp\", 4}})"));
  throw std::invalid_argument(ErrorText("axis", problem)
                                  .fact("mesh", to_string(*this))
                                  .fact("axes", axis_list(*this))
                                  .help(fmt::format("mesh.axis(\"{}\")", axes_.front().name)));
}

std::string Mesh::axis_label(int64_t axis) const {
  const std::string& name = axes_.at(static_cast<size_t>(axis)).name;
  return name.empty() ? std::to_string(axis) : name;
}

int64_t Mesh::rank_at(std::span<const int64_t> coordinate) const {
  int64_t index = 0;
  for (size_t a = 0; a < axes_.size(); ++a) index = index * axes_[a].size + coordinate[a];
  return ranks_.empty() ? index : ranks_[static_cast<size_t>(index)];
}

std::vector<int64_t> Mesh::ranks() const {
  if (!ranks_.empty()) return ranks_;
  std::vector<int64_t> ranks(static_cast<size_t>(size_));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int64_t>(i);
  return ranks;
}

std::optional<Dims> Mesh::coordinate_of(int64_t rank) const {
  if (ranks_.empty()) {
    if (rank < 0 || rank >= size_) return std::nullopt;
    return coordinate_at(rank);
  }
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) return std::nullopt;
  return coordinate_at(found - ranks_.begin());
}

Dims Mesh::coordinate_at(int64_t index) const {
  Dims coordinate(axes_.size());
  for (size_t a = axes_.size(); a-- > 0;) {
    coordinate[a] = index % axes_[a].size;
    index /= axes_[a].size;
  }
  return coordinate;
}

Mesh Mesh::slice(std::span<const int64_t> axes, int64_t rank) const {
  std::vector<MeshAxis> kept;
  for (size_t i = 0; i < axes.size(); ++i) {
    check_axis("slice", *this, axes[i]);
    if (std::find(axes.begin(), axes.begin() + static_cast<int64_t>(i), axes[i]) !=
        axes.begin() + static_cast<int64_t>(i))
      throw std::invalid_argument(ErrorText("slice", fmt::format("axis {} is asked for twice", axis_label(axes[i])))
                                      .fact("mesh", to_string(*this))
                                      .help(fmt::format("mesh.slice({{{}}}, {})", axes[i], rank)));
    kept.push_back(axes_[static_cast<size_t>(axes[i])]);
  }
  const auto through = coordinate_of(rank);
  if (!through)
    throw std::invalid_argument(ErrorText("slice", fmt::format("rank {} is not in the mesh", rank))
                                    .fact("mesh", to_string(*this))
                                    .help("mesh.coordinate_of(rank) says whether it is"));
  const Mesh places(kept);
  Dims coordinate = *through;
  std::vector<int64_t> ranks(static_cast<size_t>(places.size()));
  for (int64_t i = 0; i < places.size(); ++i) {
    const Dims place = places.coordinate_at(i);
    for (size_t a = 0; a < axes.size(); ++a) coordinate[static_cast<size_t>(axes[a])] = place[a];
    ranks[static_cast<size_t>(i)] = rank_at(coordinate);
  }
  return Mesh(std::move(kept), std::move(ranks));
}

Mesh Mesh::flatten(int64_t first, int64_t count, std::string name) const {
  if (first < 0 || count < 1 || first > ndim() || count > ndim() - first)
    throw std::invalid_argument(ErrorText("flatten", fmt::format("there are no {} axes from axis {} on", count, first))
                                    .fact("mesh", to_string(*this))
                                    .help(fmt::format("mesh.flatten(0, {}, \"{}\")", ndim(), name)));
  MeshAxis flat{std::move(name), 1};
  for (int64_t a = first; a < first + count; ++a) flat.size *= size(a);
  std::vector<MeshAxis> axes(axes_.begin(), axes_.begin() + first);
  axes.push_back(std::move(flat));
  axes.insert(axes.end(), axes_.begin() + first + count, axes_.end());
  return ranks_.empty() ? Mesh(std::move(axes)) : Mesh(std::move(axes), ranks_);
}

Mesh Mesh::unflatten(int64_t axis, std::vector<MeshAxis> into) const {
  check_axis("unflatten", *this, axis);
  int64_t product = 1;
  bool fits = true;
  for (const MeshAxis& part : into)
    fits = fits && part.size >= 1 && !__builtin_mul_overflow(product, part.size, &product);
  if (!fits || product != size(axis))
    throw std::invalid_argument(
        ErrorText("unflatten", fmt::format("the sizes do not multiply to the axis's {}", size(axis)))
            .fact("axis", axis_label(axis) + " of " + to_string(*this))
            .fact("into", axes_text(into))
            .help(fmt::format("mesh.unflatten({}, {{{{\"a\", {}}}, {{\"b\", 1}}}})", axis, size(axis))));
  std::vector<MeshAxis> axes(axes_.begin(), axes_.begin() + axis);
  axes.insert(axes.end(), into.begin(), into.end());
  axes.insert(axes.end(), axes_.begin() + axis + 1, axes_.end());
  return ranks_.empty() ? Mesh(std::move(axes)) : Mesh(std::move(axes), ranks_);
}

std::string to_string(const Mesh& mesh) {
  std::string text = axes_text(mesh.axes());
  if (!mesh.has_default_ranks()) text += ranks_text(mesh.ranks(), std::string::npos);
  return text;
}

Mesh parse_mesh(std::string_view text) {
  detail::Scanner scan("parse_mesh", text, kHelp);
  std::vector<MeshAxis> axes;
  scan.expect('[');
  if (!scan.accept(']')) {
    do {
      const size_t place = scan.place();
      MeshAxis axis;
      if (!scan.next_is_number()) {
        axis.name = scan.name("an axis name or a size");
        scan.expect('=');
      }
      axis.size = scan.number("a size");
      axes.push_back(std::move(axis));
      if (const std::string problem = axes_problem(axes); !problem.empty()) scan.fail_at(place, problem);
    } while (scan.accept(','));
    scan.expect(']');
  }
  Mesh mesh(axes);
  if (scan.accept('{')) {
    const size_t place = scan.place();
    std::vector<int64_t> ranks = scan_ranks(scan, std::min(mesh.size(), kMaxListedRanks));
    scan.expect('}');
    if (const std::string problem = ranks_problem(mesh.size(), ranks); !problem.empty()) scan.fail_at(place, problem);
    mesh = Mesh(std::move(axes), std::move(ranks));
  }
  scan.expect_end();
  return mesh;
}

}  // namespace sherd
