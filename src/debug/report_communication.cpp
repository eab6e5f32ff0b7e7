// What was sent, on a page.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "layout/bytes_text.h"
#include "sherd/report.h"

namespace sherd {
namespace {

constexpr size_t kMaxRows = 20;  // of a table: the largest

struct Total {
  int64_t calls = 0, bytes = 0;
  void add(int64_t received) {
    calls += 1;
    bytes += received;
  }
};

std::string bytes_cell(int64_t bytes) { return detail::bytes_text(static_cast<double>(bytes)); }

// "addmm", "gradient bucket"; "program" where it called the collective itself.
std::string purpose_of(const CommRecord& record) {
  const std::string& name = record.operation;
  if (name.empty()) return "program";
  return name.starts_with("aten::") ? name.substr(6) : name;
}

// "blocks.0.attention" and "blocks.1.attention" are one row: "blocks.*.attention".
std::string alike(const std::string& module) {
  std::string text;
  size_t from = 0;
  while (from <= module.size()) {
    const size_t end = std::min(module.find('.', from), module.size());
    const std::string name = module.substr(from, end - from);
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    text += (text.empty() ? "" : ".") + (is_number ? "*" : name);
    from = end + 1;
  }
  return text;
}

// Three cells, bytes, calls, and other cells: the rows with the most bytes, what the others have together, and all.
template <class Key>
void put_rows(const std::map<Key, Total>& totals, const std::function<std::vector<std::string>(const Key&)>& cells,
              ReportTable& table) {
  std::vector<std::pair<Key, Total>> rows(totals.begin(), totals.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  Total others, all;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Total& total = rows[i].second;
    all.calls += total.calls;
    all.bytes += total.bytes;
    if (i >= kMaxRows) {
      others.calls += total.calls;
      others.bytes += total.bytes;
      continue;
    }
    std::vector<std::string> row = cells(rows[i].first);
    row.insert(row.begin() + 3, {bytes_cell(total.bytes), std::to_string(total.calls)});
    table.rows.push_back(std::move(row));
  }
  const auto put = [&](std::string name, const Total& total) {
    std::vector<std::string> row(table.columns.size());
    row[0] = std::move(name);
    row[3] = bytes_cell(total.bytes);
    row[4] = std::to_string(total.calls);
    table.rows.push_back(std::move(row));
  };
  if (rows.size() > kMaxRows) put(fmt::format("{} others", rows.size() - kMaxRows), others);
  put("all", all);
}

}  // namespace

Report& Report::communication(const CommDebugMode& debug) { return communication(debug.records()); }

Report& Report::communication(std::span<const CommRecord> records) {
  if (records.empty()) return text("Nothing was sent.");
  std::map<std::string, std::vector<double>> by_kind;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, Total> totals;
  for (const CommRecord& record : records) {
    const bool is_backward = record.pass == CommPass::backward;
    auto& bar = by_kind.emplace(record.collective + " " + record.axis, std::vector<double>(2)).first->second;
    bar[is_backward ? 1 : 0] += static_cast<double>(record.bytes);
    totals[{record.collective, record.axis, to_string(record.pass), purpose_of(record), alike(record.module)}].add(
        record.bytes);
  }
  BarChart bars{.title = "received, by collective and axis", .parts = {"forward", "backward"}, .bars = {}};
  bars.unit = BarChart::Unit::bytes;
  for (const auto& [label, values] : by_kind) bars.bars.push_back({label, values});
  ReportTable table{{"collective", "axis", "pass", "received", "calls", "for", "module"}, {}};
  using Key = decltype(totals)::key_type;
  put_rows<Key>(
      totals,
      [](const Key& key) {
        const auto& [collective, axis, pass, purpose, module] = key;
        return std::vector<std::string>{collective, axis, pass, purpose, module};
      },
      table);
  return chart(bars).table(table);
}

Report& Report::communication(std::span<const CollectiveCall> calls) {
  std::map<std::tuple<std::string, std::string, std::string>, Total> totals;
  for (const CollectiveCall& call : calls) totals[{call.name, call.group, call.dtype}].add(call.bytes);
  if (totals.empty()) return text("Nothing was sent.");
  BarChart bars{.title = "received, by collective and group", .parts = {"received"}, .bars = {}};
  bars.unit = BarChart::Unit::bytes;
  for (const auto& [key, total] : totals)
    bars.bars.push_back({std::get<0>(key) + " " + std::get<1>(key), {static_cast<double>(total.bytes)}});
  ReportTable table{{"collective", "group", "dtype", "received", "calls"}, {}};
  using Key = decltype(totals)::key_type;
  put_rows<Key>(
      totals,
      [](const Key& key) {
        return std::vector<std::string>{std::get<0>(key), std::get<1>(key), std::get<2>(key)};
      },
      table);
  return chart(bars).table(table);
}

}  // namespace sherd
