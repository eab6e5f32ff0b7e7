#include "page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "chart.h"
#include "sherd/picture.h"
#include "train.h"

namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2433; --faint: #8a93a6; --line: #d9dde6; --one: #f2a541; --many: #2057c7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8f1; --line: #39404f; --one: #b9741a; --many: #7fb0ff; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 760px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
svg { font: 12px system-ui, sans-serif; max-width: 100%; }
.charts svg { width: 100%; height: auto; }
.pictures { display: flex; flex-wrap: wrap; gap: 1em; } figure { margin: 0; } figcaption { font-size: .8em; }
svg text { fill: currentColor; }
svg .title { font-weight: 600; }
svg .grid { stroke: var(--line); }
svg polyline { fill: none; stroke-linejoin: round; }
svg .one { stroke: var(--one); stroke-width: 7; stroke-linecap: round; }
svg .many { stroke: var(--many); stroke-width: 2; }
svg .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 2 3; }
svg .limit { stroke: var(--faint); stroke-width: 1.5; stroke-dasharray: 5 4; }
table { border-collapse: collapse; } th, td { padding: .2em 1em .2em 0; text-align: left; }
th { border-bottom: 1px solid var(--line); font-weight: 600; } td.number, th.number { text-align: right; }
code { font-size: .95em; } .faint { color: var(--faint); }
)";

std::string bytes_text(int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  return bytes < 1024 * 1024 ? fmt::format("{:.1f} KiB", amount / 1024) : fmt::format("{:.1f} MiB", amount / 1048576);
}

std::string collectives_table(const std::vector<sherd::CollectiveCall>& calls) {
  struct Total {
    int64_t calls = 0, bytes = 0;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Total> totals;
  Total all;
  for (const auto& call : calls) {
    Total& total = totals[{call.name, call.group, call.dtype}];
    for (Total* each : {&total, &all}) {
      each->calls += 1;
      each->bytes += call.bytes;
    }
  }
  std::string html =
      "<table>\n<tr><th>collective</th><th>group</th><th>dtype</th><th class=\"number\">calls</th>"
      "<th class=\"number\">received</th></tr>\n";
  const auto row = [&](const auto& name, const auto& group, const auto& dtype, const Total& total) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n", name,
        group, dtype, total.calls, bytes_text(total.bytes));
  };
  for (const auto& [key, total] : totals) row(std::get<0>(key), std::get<1>(key), std::get<2>(key), total);
  row("<b>all</b>", "", "", all);
  return html + "</table>\n";
}

// "", or where the run was stopped and taken up again.
std::string resumption(const Report& report) {
  if (report.legs.size() < 2) return "";
  return fmt::format(
      "<p>After step {} the ranks saved a checkpoint on mesh <code>{}</code> ({} in {:.0f} ms). A model with other "
      "weights, on mesh <code>{}</code>, loaded it ({:.0f} ms) and went on: each rank read the parts that it has "
      "there.</p>\n",
      report.legs[0].steps, report.legs[0].mesh, bytes_text(report.checkpoint_bytes), 1e3 * report.save_seconds,
      report.legs[1].mesh, 1e3 * report.load_seconds);
}

std::vector<Mark> marks_of(const Report& report, bool with_text) {
  if (report.legs.size() < 2) return {};
  const std::string text = fmt::format("saved; resumed on {}", report.legs[1].mesh);
  return {{report.legs[0].steps, with_text ? text : ""}};
}

std::string meshes_text(const Report& report) {
  std::string text;
  for (const Leg& leg : report.legs)
    text += fmt::format("{}<code>{}</code>", text.empty() ? "Mesh " : ", then ", leg.mesh);
  return text;
}

}  // namespace

std::string make_page(const Report& report) {
  const auto differences = relative_differences(report.sharded, report.alone);
  const double largest = differences.empty() ? 0 : *std::max_element(differences.begin(), differences.end());
  const std::string many = fmt::format("{} ranks", report.ranks);

  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>sherd: a GPT on {}</title>\n<style>{}</style>\n</head>\n<body>\n",
      many, kStyle);
  html += fmt::format(
      "<h1>A small GPT, trained on {} and on one</h1>\n"
      "<p>{}, {} on {}, ranks as {}. The model is the same plain <code>torch::nn</code> module in "
      "both "
      "runs, from the same weights. After {} steps the two losses differ by at most <b>{:.1e}</b> of their value; "
      "{:.0e} "
      "is allowed.</p>\n",
      many, meshes_text(report), report.dtype, report.device, report.as_processes ? "processes" : "threads",
      report.sharded.size(), largest, report.tolerance);

  html += resumption(report);
  html += "<h2>The curves</h2>\n<div class=\"charts\">\n";
  html += draw_chart({.title = "loss",
                      .series = {{"one rank", "one", report.alone}, {many, "many", report.sharded}},
                      .marks = marks_of(report, true)});
  html += draw_chart({.title = "relative difference",
                      .series = {{"difference", "many", differences},
                                 {"allowed", "limit", std::vector<double>(differences.size(), report.tolerance)}},
                      .marks = marks_of(report, false),
                      .logarithmic = true});
  html += fmt::format(
      "</div>\n<p class=\"faint\">{} steps took {:.1f} s on {} and {:.1f} s on one, on the same machine.</p>\n",
      report.sharded.size(), report.sharded_seconds, many, report.alone_seconds);

  html += "<h2>Where parameters lie</h2>\n";
  html += "<p>The numbers in the boxes are ranks: ranks that share a box hold the same data.</p>\n";
  for (const Leg& leg : report.legs) {
    html += fmt::format("<p>On <code>{}</code>:</p>\n<div class=\"pictures\">\n", leg.mesh);
    for (const auto& picture : leg.pictures)
      html += fmt::format("<figure><figcaption><code>{}</code></figcaption>\n{}</figure>\n", picture.name,
                          sherd::draw_svg(picture.layout, {.width = 230}));
    html += "</div>\n";
  }

  html += "<h2>What one step sends</h2>\n<p>As rank 0 called it, from the batch to the loss that was read.</p>\n";
  for (const Leg& leg : report.legs)
    html += fmt::format("<p>On <code>{}</code>:</p>\n{}", leg.mesh, collectives_table(leg.calls));
  return html + "</body>\n</html>\n";
}
