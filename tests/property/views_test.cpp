// Chains of views drawn at random: the values and the geometry of each are those of one device, writes through any of
// them reach the tensor and all others, and so do gradients. as_strided may refuse, never be wrong.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <optional>
#include <random>

#include "property/distribute_any.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using Change = std::function<Tensor(const Tensor&)>;

struct Step {
  std::string text;
  Change view;
  bool one_of_several = false;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int64_t below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }

  // A view that the tensor has, whose memory is `elements` long; nothing where the drawn kind does not fit.
  std::optional<Step> view_of(const Tensor& x, int64_t elements) {
    const int64_t kind = below(12);
    if (kind == 0) return as_strided(x, elements);
    if (kind == 1) return Step{"detach()", [](const Tensor& t) { return t.detach(); }};
    if (kind == 2) return flat(x);
    if (x.dim() == 0) return std::nullopt;
    const int64_t d = below(x.dim());
    const int64_t n = x.size(d);
    const std::string dim = std::to_string(d);
    switch (kind) {
      case 3: {
        const int64_t begin = below(n);
        const int64_t end = begin + 1 + below(n - begin);
        const int64_t step = 1 + below(2);
        return Step{"slice" + to_string(Dims{d, begin, end, step}),
                    [=](const Tensor& t) { return t.slice(d, begin, end, step); }};
      }
      case 4: {
        const int64_t row = below(n);
        return Step{"select" + to_string(Dims{d, row}), [=](const Tensor& t) { return t.select(d, row); }};
      }
      case 5: {
        const int64_t other = below(x.dim());
        return Step{"transpose" + to_string(Dims{d, other}), [=](const Tensor& t) { return t.transpose(d, other); }};
      }
      case 6:
        if (x.dim() > 3) return std::nullopt;
        return Step{"unsqueeze(" + dim + ")", [=](const Tensor& t) { return t.unsqueeze(d); }};
      case 7:
        if (x.dim() != 2) return std::nullopt;
        return Step{"diagonal()", [](const Tensor& t) { return t.diagonal(); }};
      case 8: {
        if (x.dim() > 3) return std::nullopt;
        const int64_t rows = 1 + below(n);
        const int64_t step = 1 + below(2);
        return Step{"unfold" + to_string(Dims{d, rows, step}),
                    [=](const Tensor& t) { return t.unfold(d, rows, step); }};
      }
      case 9: {
        const int64_t row = below(n);
        return Step{"unbind(" + dim + ")[" + std::to_string(row) + "]",
                    [=](const Tensor& t) { return t.unbind(d)[static_cast<size_t>(row)]; }, true};
      }
      case 10: {
        const int64_t rows = 1 + below(3);
        const int64_t part = below((n + rows - 1) / rows);
        return Step{"split" + to_string(Dims{rows, d}) + "[" + std::to_string(part) + "]",
                    [=](const Tensor& t) { return t.split(rows, d)[static_cast<size_t>(part)]; }, true};
      }
      default:
        if (x.dim() != 2 || x.requires_grad()) return std::nullopt;
        return Step{"t_()", [](const Tensor& t) { return t.alias().t_(); }};
    }
  }

 private:
  std::optional<Step> as_strided(const Tensor& x, int64_t elements) {
    Dims sizes;
    Dims strides;
    int64_t reach = 1;
    for (int64_t i = below(3); i > 0; --i) {
      sizes.push_back(1 + below(3));
      strides.push_back(1 + below(5));
      reach += (sizes.back() - 1) * strides.back();
    }
    const bool at_itself = one_in(3);
    const int64_t offset = at_itself || one_in(2) ? x.storage_offset() : below(elements);
    if (offset + reach > elements) return std::nullopt;
    const auto said = at_itself ? std::optional<int64_t>() : offset;
    return Step{"as_strided" + to_string(sizes) + to_string(strides) + (said ? std::to_string(*said) : ""),
                [=](const Tensor& t) { return t.as_strided(sizes, strides, said); }};
  }
  static std::optional<Step> flat(const Tensor& x) {
    if (!x.is_contiguous()) return std::nullopt;
    return Step{"view(-1)", [](const Tensor& t) { return t.view(-1); }};
  }

  std::mt19937 random_;
};

// Whether no element of the memory stands in it twice: what a write to those gives is nobody's promise.
bool is_distinct(const Tensor& view, int64_t elements) {
  const Tensor places = torch::arange(elements).as_strided(view.sizes(), view.strides(), view.storage_offset());
  return std::get<0>(at::_unique2(places)).numel() == places.numel();
}

Change write_of(Draw& draw) {
  switch (draw.below(3)) {
    case 0:
      return [](Tensor t) { return t.mul_(3); };
    case 1:
      return [](Tensor t) { return t.add_(1); };
    default:
      return [](Tensor t) { return t.fill_(5); };
  }
}

// What is wrong; "" where nothing is, "refused" where as_strided said that it cannot.
std::string check_chain(const DeviceMesh& mesh, unsigned seed) {
  Draw draw(seed);
  Dims shape{1 + draw.below(5), 1 + draw.below(4)};
  if (draw.one_in(3)) shape.push_back(2);
  const Tensor dense = (torch::arange(numel(shape), torch::kDouble) + 1).view(shape);
  const auto choices = draw.one_in(3) ? unusual_placements(mesh.mesh(), dense)
                                      : all_placements(mesh.mesh(), dense.dim(), /*partial=*/true);
  Placements placements = choices[static_cast<size_t>(draw.below(static_cast<int64_t>(choices.size())))];
  const bool with_gradients = draw.one_in(2);
  for (Placement& p : placements) {
    if (with_gradients && is_partial(p)) p = Replicate();
  }
  const Tensor leaf = dense.clone().requires_grad_(with_gradients);
  const Tensor d_leaf = distribute_any(dense, mesh, placements).detach().requires_grad_(with_gradients);
  const Tensor x = with_gradients ? leaf * 1 : leaf;
  const Tensor d = with_gradients ? d_leaf * 1 : d_leaf;
  std::vector<std::pair<Tensor, Tensor>> views{{x, d}};
  std::string text = to_string(d_leaf);
  const auto difference = [&]() -> std::string {
    for (const auto& [right, got] : views) {
      if (got.sizes() != right.sizes() || got.strides() != right.strides()) return text + ": another geometry";
      if (!full_tensor(got.detach()).equal(right.detach())) return text + ": other values";
    }
    return "";
  };
  bool may_write = true;
  for (int64_t steps = 1 + draw.below(5); steps > 0; --steps) {
    const auto step = draw.view_of(views.back().first, x.numel());
    if (!step || (with_gradients && step->text == "detach()")) continue;
    text += " " + step->text;
    // Autograd refuses writes to one of several views.
    may_write &= !with_gradients || !step->one_of_several;
    const Tensor right = step->view(views.back().first);
    try {
      views.emplace_back(right, step->view(views.back().second));
    } catch (const c10::NotImplementedError& error) {
      const bool refused = std::string(error.what()).find("no memory around it") != std::string::npos;
      return refused && step->text.starts_with("as_strided") ? "refused" : text + " threw " + error.what();
    }
    if (may_write && draw.one_in(3) && is_distinct(right, x.numel())) {
      const Change write = write_of(draw);
      text += " written";
      write(right);
      write(views.back().second);
    }
    if (!with_gradients && draw.one_in(4)) {
      text += " base written";
      x.add_(1);
      d.add_(1);
    }
    if (const std::string wrong = difference(); !wrong.empty()) return wrong;
  }
  if (!with_gradients) return "";
  const auto& [right, got] = views.back();
  const Tensor weights = (torch::arange(right.numel(), torch::kDouble) + 1).view(right.sizes());
  ((right * weights).sum() + (x * x).sum()).backward();
  ((got * weights).sum() + (d * d).sum()).backward();
  if (placements_of(d_leaf.grad()) != placements) return text + ": the gradient is " + to_string(d_leaf.grad());
  return full_tensor(d_leaf.grad()).equal(leaf.grad()) ? "" : text + ": another gradient";
}

class ViewsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ViewsTest, ChainsOfViewsAreThoseOfOneDevice) {
  constexpr unsigned kChains = 1000;
  const Mesh shape = parse_mesh(GetParam());
  spawn(static_cast<int>(shape.size()),
        [&](World& world) {
          const DeviceMesh mesh("cpu", shape);
          unsigned refused = 0;
          for (unsigned seed = 0; seed < kChains; ++seed) {
            const std::string wrong = check_chain(mesh, seed);
            if (wrong == "refused") {
              ++refused;
            } else if (!wrong.empty()) {
              ADD_FAILURE() << "seed " << seed << ", rank " << world.rank() << ": " << wrong;
              return;
            }
          }
          EXPECT_LT(refused, kChains / 10);
        },
        {.timeout = std::chrono::seconds(30)});
}

INSTANTIATE_TEST_SUITE_P(Meshes, ViewsTest, ::testing::Values("[a=2]", "[a=3]", "[a=2, b=2]"),
                         [](const auto& each) { return "Mesh" + std::to_string(each.index); });

}  // namespace
}  // namespace sherd::testing
