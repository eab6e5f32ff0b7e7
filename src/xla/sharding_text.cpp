#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <stdexcept>

#include "layout/scanner.h"
#include "sherd/xla_sharding.h"
#include "xla/check_sharding.h"
#include "xla/device_order.h"

namespace sherd {
namespace {

using Kind = XlaSharding::Kind;
using Subgroup = XlaSharding::Subgroup;

constexpr const char* kHelp =
    "{replicated}, {maximal device=0}, {devices=[2,4]<=[8]}, {devices=[2,2]0,2,1,3}, {devices=[2,1,2]<=[4] "
    "last_tile_dim_replicate}";

constexpr std::pair<std::string_view, Kind> kKinds[] = {{"replicated", Kind::replicated},
                                                        {"maximal", Kind::maximal},
                                                        {"manual", Kind::manual},
                                                        {"unknown", Kind::unknown},
                                                        {"unreduced", Kind::unreduced}};
constexpr std::pair<std::string_view, Subgroup> kSubgroups[] = {
    {"replicated", Subgroup::replicated}, {"manual", Subgroup::manual}, {"unreduced", Subgroup::unreduced}};

template <class Value, size_t Count>
std::string_view word_of(const std::pair<std::string_view, Value> (&words)[Count], Value value) {
  for (const auto& [word, meaning] : words)
    if (meaning == value) return word;
  return "";
}

std::string devices_text(const std::vector<int64_t>& devices) {
  const auto iota = detail::iota_order_of(devices);
  if (!iota) return fmt::format("{}", fmt::join(devices, ","));
  std::string text = fmt::format("<=[{}]", fmt::join(iota->dims, ","));
  if (iota->dims.size() > 1) fmt::format_to(std::back_inserter(text), "T({})", fmt::join(iota->permutation, ","));
  return text;
}

// One text, word by word, in whatever order: as XLA reads it.
class Parser {
 public:
  explicit Parser(std::string_view text) : scan_("parse_xla_sharding", text, kHelp) {}

  XlaSharding run() {
    scan_.expect('{');
    if (scan_.next_is('{') || scan_.next_is('}')) scan_.fail("a tuple of shardings: one tensor has one");
    while (!scan_.accept('}')) word();
    scan_.expect_end();
    finish();
    return sharding_;
  }

 private:
  void word() {
    const size_t place = scan_.place();
    const std::string_view word = scan_.name("a word of a sharding, or '}'");
    if (word == "devices") return devices(place);
    if (word == "device") {
      scan_.expect('=');
      if (device_) scan_.fail_at(place, "a second device");
      device_ = scan_.number("a device");
      return;
    }
    if (word == "last_tile_dim_replicate" || word == "last_tile_dims") return subgroups(place, word);
    for (const auto& [name, kind] : kKinds) {
      if (word != name) continue;
      if (has_kind_) scan_.fail_at(place, "a sharding is of one kind");
      has_kind_ = true;
      sharding_.kind = kind;
      return;
    }
    scan_.fail_at(place, fmt::format("\"{}\" is no word of a sharding", word.substr(0, 40)));
  }

  void devices(size_t place) {
    if (has_kind_) scan_.fail_at(place, "a sharding is of one kind");
    has_kind_ = true;
    sharding_.kind = Kind::tiled;
    scan_.expect('=');
    sharding_.tiles = sizes("the number of tiles");
    if (!scan_.accept('<')) {
      do {
        if (static_cast<int64_t>(sharding_.devices.size()) == detail::kMaxDevices)
          scan_.fail(fmt::format("more devices than the {} that can be", detail::kMaxDevices));
        sharding_.devices.push_back(scan_.number("a device, or '<='"));
      } while (scan_.accept(','));
      return;
    }
    scan_.expect('=');
    detail::IotaOrder order{sizes("a size"), {}};
    if (scan_.next_is('T')) {
      permutation(order);
    } else {
      for (size_t d = 0; d < order.dims.size(); ++d) order.permutation.push_back(static_cast<int64_t>(d));
    }
    sharding_.devices = detail::devices_in(order);
  }

  // "[2,4]": sizes whose product is not too large.
  Dims sizes(const char* what) {
    Dims sizes;
    int64_t count = 1;
    scan_.expect('[');
    do {
      const size_t place = scan_.place();
      const int64_t size = scan_.number(what);
      if (size < 1) scan_.fail_at(place, "a size below 1");
      if (__builtin_mul_overflow(count, size, &count) || count > detail::kMaxDevices)
        scan_.fail_at(place, fmt::format("more devices than the {} that can be", detail::kMaxDevices));
      sizes.push_back(size);
    } while (scan_.accept(','));
    scan_.expect(']');
    return sizes;
  }

  void permutation(detail::IotaOrder& order) {
    const size_t begin = scan_.place();
    if (scan_.name("T") != "T") scan_.fail_at(begin, "expected T(...)");
    scan_.expect('(');
    std::vector<bool> seen(order.dims.size(), false);
    do {
      const size_t place = scan_.place();
      const int64_t dim = scan_.number("a dim");
      if (dim < 0 || dim >= static_cast<int64_t>(order.dims.size()))
        scan_.fail_at(place, fmt::format("there is no dim {}", dim));
      if (seen[static_cast<size_t>(dim)]) scan_.fail_at(place, fmt::format("dim {} stands twice", dim));
      seen[static_cast<size_t>(dim)] = true;
      order.permutation.push_back(dim);
    } while (scan_.accept(','));
    scan_.expect(')');
    if (order.permutation.size() != order.dims.size())
      scan_.fail_at(begin, fmt::format("{} dims are put in order, of {}", order.permutation.size(), order.dims.size()));
  }

  void subgroups(size_t place, std::string_view word) {
    if (!sharding_.subgroups.empty()) scan_.fail_at(place, "the subgroups are given twice");
    subgroups_place_ = place;
    if (word == "last_tile_dim_replicate") {
      sharding_.subgroups = {Subgroup::replicated};
      return;
    }
    scan_.expect('=');
    scan_.expect('{');
    do {
      const size_t at = scan_.place();
      const std::string_view name = scan_.name("a kind of subgroup");
      const size_t known = sharding_.subgroups.size();
      for (const auto& [text, kind] : kSubgroups)
        if (name == text) sharding_.subgroups.push_back(kind);
      if (sharding_.subgroups.size() == known)
        scan_.fail_at(at, fmt::format("\"{}\" is no kind of subgroup", name.substr(0, 40)));
    } while (scan_.accept(','));
    scan_.expect('}');
  }

  void finish() {
    if (!has_kind_) scan_.fail("the sharding says nothing of devices");
    if (sharding_.kind != Kind::tiled && !sharding_.subgroups.empty())
      scan_.fail_at(subgroups_place_, "subgroups without devices=");
    if (device_ && sharding_.kind != Kind::maximal) scan_.fail("device= without maximal");
    if (sharding_.kind == Kind::maximal) {
      if (!device_) scan_.fail("maximal without device=");
      sharding_.devices = {*device_};
    }
    if (const std::string problem = detail::sharding_problem(sharding_); !problem.empty()) scan_.fail(problem);
  }

  detail::Scanner scan_;
  XlaSharding sharding_;
  bool has_kind_ = false;
  size_t subgroups_place_ = 0;
  std::optional<int64_t> device_;
};

}  // namespace

std::string to_string(const XlaSharding& sharding) {
  if (sharding.kind == Kind::maximal)
    return fmt::format("{{maximal device={}}}", sharding.devices.empty() ? -1 : sharding.devices.front());
  if (sharding.kind != Kind::tiled) return fmt::format("{{{}}}", word_of(kKinds, sharding.kind));
  std::string text = fmt::format("{{devices=[{}]{}", fmt::join(sharding.tiles, ","), devices_text(sharding.devices));
  if (sharding.subgroups == std::vector{Subgroup::replicated}) {
    text += " last_tile_dim_replicate";
  } else if (!sharding.subgroups.empty()) {
    std::vector<std::string_view> words;
    for (const Subgroup group : sharding.subgroups) words.push_back(word_of(kSubgroups, group));
    fmt::format_to(std::back_inserter(text), " last_tile_dims={{{}}}", fmt::join(words, ", "));
  }
  return text + "}";
}

XlaSharding parse_xla_sharding(std::string_view text) { return Parser(text).run(); }

}  // namespace sherd
