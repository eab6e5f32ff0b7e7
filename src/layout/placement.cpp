#include "sherd/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "layout/placement_text.h"

namespace sherd {
namespace {

constexpr std::string_view kHelp = "S(0), S(0, split=2), S(0, cuts=0:3:10), R, P(sum)";
constexpr size_t kBriefCuts = 8;

struct ReduceOpName {
  ReduceOp op;
  std::string_view name;
};
constexpr std::array<ReduceOpName, 8> kReduceOps = {{
    {ReduceOp::sum, "sum"},
    {ReduceOp::avg, "avg"},
    {ReduceOp::min, "min"},
    {ReduceOp::max, "max"},
    {ReduceOp::product, "product"},
    {ReduceOp::band, "band"},
    {ReduceOp::bor, "bor"},
    {ReduceOp::bxor, "bxor"},
}};

Placement scan_placement(detail::Scanner& scan) {
  const size_t place = scan.place();
  if (scan.next_is('P')) return detail::scan_partial(scan);
  if (scan.accept('R')) return Replicate();
  if (!scan.accept('S')) scan.fail_at(place, "expected a placement");
  scan.expect('(');
  const int64_t dim = scan.number("a tensor dim");
  Placement placement = Shard(dim);
  if (scan.accept(',')) placement = detail::scan_shard_option(scan, dim);
  scan.expect(')');
  return placement;
}

std::string text_of(const Placement& p, const std::string& option) {
  if (is_replicate(p)) return "R";
  if (const auto* partial = std::get_if<Partial>(&p)) return fmt::format("P({})", to_string(partial->op));
  return fmt::format("S({}{}{})", sharded_dim(p), option.empty() ? "" : ", ", option);
}

std::string code_of(const Placement& p) {
  if (is_replicate(p)) return "Replicate()";
  if (const auto* shard = std::get_if<Shard>(&p)) return fmt::format("Shard({})", shard->dim);
  if (const auto* strided = std::get_if<StridedShard>(&p))
    return fmt::format("StridedShard({}, {})", strided->dim, strided->split);
  if (const auto* ragged = std::get_if<Ragged>(&p))
    return fmt::format("Ragged({}, {{{}}})", ragged->dim, fmt::join(ragged->cuts, ", "));
  const ReduceOp op = std::get<Partial>(p).op;
  return op == ReduceOp::sum ? "Partial()" : fmt::format("Partial(ReduceOp::{})", to_string(op));
}

}  // namespace

namespace detail {

std::string shard_option_text(const Placement& p) {
  if (const auto* strided = std::get_if<StridedShard>(&p)) return fmt::format("split={}", strided->split);
  if (const auto* ragged = std::get_if<Ragged>(&p)) return fmt::format("cuts={}", fmt::join(ragged->cuts, ":"));
  return "";
}

Placement scan_shard_option(Scanner& scan, int64_t dim) {
  const size_t place = scan.place();
  const std::string_view option = scan.name("split= or cuts=");
  if (option != "split" && option != "cuts") scan.fail_at(place, "expected split= or cuts=");
  scan.expect('=');
  if (option == "split") {
    const size_t number_place = scan.place();
    const int64_t split = scan.number("a number of chunks");
    if (split < 1) scan.fail_at(number_place, "split must be at least 1");
    return StridedShard(dim, split);
  }
  Ragged ragged;
  ragged.dim = dim;
  do ragged.cuts.push_back(scan.number("a row to cut at"));
  while (scan.accept(':'));
  return ragged;
}

Placement scan_partial(Scanner& scan) {
  scan.expect('P');
  scan.expect('(');
  const size_t place = scan.place();
  const std::string_view name = scan.name("a reduction");
  for (const ReduceOpName& known : kReduceOps) {
    if (known.name != name) continue;
    scan.expect(')');
    return Partial(known.op);
  }
  scan.fail_at(place, "no such reduction; there are sum, avg, min, max, product, band, bor, bxor");
}

std::string brief(const Placement& p) {
  const auto* ragged = std::get_if<Ragged>(&p);
  if (!ragged || ragged->cuts.size() <= kBriefCuts) return to_string(p);
  const auto first = ragged->cuts.begin();
  return text_of(p, fmt::format("cuts={}:...:{}", fmt::join(first, first + kBriefCuts - 1, ":"), ragged->cuts.back()));
}

std::string brief(const Placements& placements) {
  std::string text = "(";
  for (const Placement& p : placements) text.append(text.size() > 1 ? ", " : "").append(brief(p));
  return text + ")";
}

}  // namespace detail

std::string to_string(ReduceOp op) {
  for (const ReduceOpName& known : kReduceOps)
    if (known.op == op) return std::string(known.name);
  return fmt::format("ReduceOp({})", static_cast<int>(op));
}

int64_t sharded_dim(const Placement& p) {
  if (const auto* shard = std::get_if<Shard>(&p)) return shard->dim;
  if (const auto* strided = std::get_if<StridedShard>(&p)) return strided->dim;
  if (const auto* ragged = std::get_if<Ragged>(&p)) return ragged->dim;
  return -1;
}

std::string to_string(const Placement& p) { return text_of(p, detail::shard_option_text(p)); }

std::string to_string(const Placements& placements) {
  std::string text = "(";
  for (const Placement& p : placements) text.append(text.size() > 1 ? ", " : "").append(to_string(p));
  return text + ")";
}

std::string to_code(const Placements& placements) {
  std::string code = "{";
  for (const Placement& p : placements) code.append(code.size() > 1 ? ", " : "").append(code_of(p));
  return code + "}";
}

Placement parse_placement(std::string_view text) {
  detail::Scanner scan("parse_placement", text, kHelp);
  Placement placement = scan_placement(scan);
  scan.expect_end();
  return placement;
}

Placements parse_placements(std::string_view text) {
  detail::Scanner scan("parse_placements", text, "(S(0), R, P(sum))");
  Placements placements;
  scan.expect('(');
  if (!scan.accept(')')) {
    do placements.push_back(scan_placement(scan));
    while (scan.accept(','));
    scan.expect(')');
  }
  scan.expect_end();
  return placements;
}

}  // namespace sherd
