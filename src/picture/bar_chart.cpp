#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "layout/bytes_text.h"
#include "picture/chart_frame.h"
#include "picture/escape.h"
#include "sherd/chart.h"
#include "sherd/error.h"

namespace sherd {
namespace {

constexpr double kTop = 34, kBar = 18, kStep = 26;
constexpr double kCharacter = 6.6;  // of the page's font
constexpr double kLongestLabel = 190;

void check(const BarChart& chart) {
  for (const ChartBar& bar : chart.bars) {
    if (bar.values.size() > chart.parts.size())
      throw std::invalid_argument(ErrorText("draw_svg", "a bar has more values than the chart has parts")
                                      .fact("bar", bar.label)
                                      .fact("values", std::to_string(bar.values.size()))
                                      .fact("parts", std::to_string(chart.parts.size()))
                                      .help("BarChart{.title = ..., .parts = {\"parameters\", \"gradients\"}, ...}"));
    for (const double value : bar.values)
      if (!(value >= 0) || !std::isfinite(value))
        throw std::invalid_argument(ErrorText("draw_svg", "the value of a bar is negative or not a finite number")
                                        .fact("bar", bar.label)
                                        .fact("value", fmt::format("{}", value))
                                        .help("a LineChart takes any numbers"));
  }
}

std::string amount(const BarChart& chart, double value) {
  if (chart.unit == BarChart::Unit::bytes) return detail::bytes_text(value);
  return value == std::round(value) && value < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

}  // namespace

std::string draw_svg(const BarChart& chart) {
  check(chart);
  double longest_label = 0, most = 0;
  for (const ChartBar& bar : chart.bars) {
    longest_label = std::max(longest_label, kCharacter * static_cast<double>(bar.label.size()));
    double total = 0;
    for (const double value : bar.values) total += value;
    most = std::max(most, total);
  }
  const double left = std::min(longest_label, kLongestLabel) + 10, right = 74;
  const double length = detail::kChartWidth - left - right;
  std::string svg;
  double y = kTop;
  for (const ChartBar& bar : chart.bars) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n", left - 8,
                       y + kBar - 5, detail::escaped(detail::shortened(bar.label, kLongestLabel / kCharacter)));
    double x = left, total = 0;
    for (size_t i = 0; i < bar.values.size(); ++i) {
      const double width = most > 0 ? bar.values[i] / most * length : 0;
      total += bar.values[i];
      if (width <= 0) continue;
      svg += fmt::format(
          "<g><title>{}: {}, {}</title><rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/></g>\n",
          detail::escaped(bar.label), detail::escaped(chart.parts[i]), amount(chart, bar.values[i]), x, y,
          std::max(width, 1.0), kBar, detail::chart_color(i));
      x += width;
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" fill=\"currentColor\">{}</text>\n", x + 6, y + kBar - 5,
                       amount(chart, total));
    y += kStep;
  }
  std::vector<detail::LegendKey> keys;
  for (size_t i = 0; i < chart.parts.size() && chart.parts.size() > 1; ++i)
    keys.push_back({chart.parts[i], fmt::format("<path d=\"M{{x}} {{y}}h14\" stroke=\"{}\" stroke-width=\"11\"/>",
                                                detail::chart_color(i))});
  return detail::chart_frame(chart.title, y + 4, svg, keys);
}

}  // namespace sherd
