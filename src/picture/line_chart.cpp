#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "picture/chart_frame.h"
#include "picture/escape.h"
#include "sherd/chart.h"

namespace sherd {
namespace {

using detail::escaped;

constexpr double kWidth = detail::kChartWidth, kHeight = 250;
constexpr double kLeft = 56, kRight = 14, kTop = 34, kBottom = 44;

/// Round numbers from `low` to `high`, about `count` of them.
std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  std::vector<double> result;
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step)
    result.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  return result;
}

/// Values to pixels.
class Scale {
 public:
  explicit Scale(const LineChart& chart) : logarithmic_(chart.logarithmic) {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const ChartSeries& series : chart.series) {
      steps_ = std::max(steps_, series.values.size());
      for (double value : series.values) {
        if (!std::isfinite(value) || (logarithmic_ && value <= 0)) continue;
        least = std::min(least, value);
        most = std::max(most, value);
      }
    }
    if (least > most) least = most = 1;
    low_ = logarithmic_ ? std::floor(std::log10(least)) : least - 0.05 * (most - least);
    high_ = logarithmic_ ? std::ceil(std::log10(most)) : most + 0.05 * (most - least);
    if (!(high_ - low_ > 1e-12 * std::max(1.0, std::abs(high_)))) {
      const double room = std::max(1.0, std::abs(high_) / 10);
      low_ -= room;
      high_ += room;
    }
  }

  size_t steps() const { return steps_; }
  double low() const { return low_; }
  double high() const { return high_; }

  double x(double step) const {
    const double last = std::max<double>(static_cast<double>(steps_), 2);
    return kLeft + (step - 1) / (last - 1) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    double height = value;
    if (logarithmic_) height = value > 0 ? std::log10(value) : low_;
    return y_of_height(std::isfinite(height) ? height : high_);
  }
  double y_of_height(double height) const {
    return kHeight - kBottom - (std::clamp(height, low_, high_) - low_) / (high_ - low_) * (kHeight - kTop - kBottom);
  }

 private:
  bool logarithmic_;
  size_t steps_ = 0;
  double low_ = 0, high_ = 1;
};

std::string draw_axes(const LineChart& chart, const Scale& scale) {
  std::string svg;
  for (double tick : ticks(scale.low(), scale.high(), 5)) {
    if (chart.logarithmic && tick != std::round(tick)) continue;
    const double y = scale.y_of_height(tick);
    svg += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>", kLeft, y,
                       kWidth - kRight);
    const std::string label = chart.logarithmic
                                  ? fmt::format("10<tspan dy=\"-5\" font-size=\"9\">{}</tspan>", std::lround(tick))
                                  : fmt::format("{:.4g}", tick);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n", kLeft - 8,
                       y + 4, label);
  }
  for (double tick : ticks(1, std::max<double>(static_cast<double>(scale.steps()), 2), 8)) {
    if (tick != std::round(tick)) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
                       scale.x(tick), kHeight - kBottom + 18, std::lround(tick));
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
                     kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 6, escaped(chart.steps));
  return svg;
}

std::string draw_mark(const ChartMark& mark, const Scale& scale) {
  const double x = scale.x(static_cast<double>(mark.after_step) + 0.5);
  // On the side where there is more room.
  const bool is_left = x > kLeft + (kWidth - kLeft - kRight) * 0.6;
  return fmt::format(
      "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"currentColor\" stroke-opacity=\"0.6\" stroke-dasharray=\"2 3\"/>"
      "<text x=\"{3:.1f}\" y=\"{4}\" text-anchor=\"{5}\" fill=\"currentColor\">{6}</text>\n",
      x, kTop, kHeight - kBottom, is_left ? x - 6 : x + 6, kTop + 12, is_left ? "end" : "start", escaped(mark.label));
}

}  // namespace

std::string draw_svg(const LineChart& chart) {
  const Scale scale(chart);
  std::string svg = draw_axes(chart, scale);
  for (const ChartMark& mark : chart.marks) svg += draw_mark(mark, scale);
  const size_t measured =
      static_cast<size_t>(std::count_if(chart.series.begin(), chart.series.end(), [](auto& s) { return !s.is_limit; }));
  std::vector<detail::LegendKey> keys;
  size_t above = measured;  // series that are drawn over this one
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    if (!series.is_limit) --above;
    const double width = series.is_limit ? 1.5 : std::min(2 + 4.0 * static_cast<double>(above), 8.0);
    const std::string line = fmt::format("stroke=\"{}\" stroke-width=\"{}\" fill=\"none\" stroke-linejoin=\"round\"{}",
                                         series.is_limit ? "#8a8f98" : detail::chart_color(i), width,
                                         series.is_limit ? " stroke-dasharray=\"5 4\"" : " stroke-linecap=\"round\"");
    std::string points;
    for (size_t k = 0; k < series.values.size(); ++k)
      points += fmt::format("{:.1f},{:.1f} ", scale.x(static_cast<double>(k + 1)), scale.y(series.values[k]));
    svg += fmt::format("<polyline points=\"{}\" {}/>\n", points, line);
    keys.push_back({series.label, fmt::format("<path d=\"M{{x}} {{y}}h22\" {}/>", line)});
  }
  return detail::chart_frame(chart.title, kHeight, svg, keys);
}

}  // namespace sherd
