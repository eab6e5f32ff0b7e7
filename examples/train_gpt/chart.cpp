#include "chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

constexpr double kWidth = 720, kHeight = 280;
constexpr double kLeft = 64, kRight = 16, kTop = 34, kBottom = 40;

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
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) result.push_back(tick);
  return result;
}

/// Values to pixels.
class Scale {
 public:
  explicit Scale(const Chart& chart) : logarithmic_(chart.logarithmic) {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const Series& series : chart.series) {
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
    if (high_ - low_ < 1e-12) {
      low_ -= 1;
      high_ += 1;
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

std::string draw_axes(const Chart& chart, const Scale& scale) {
  std::string svg;
  for (double tick : ticks(scale.low(), scale.high(), 5)) {
    if (chart.logarithmic && tick != std::round(tick)) continue;
    const double y = scale.y_of_height(tick);
    svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, kWidth - kRight,
                       y, y);
    const std::string label = chart.logarithmic
                                  ? fmt::format("10<tspan dy=\"-5\" font-size=\"9\">{}</tspan>", std::lround(tick))
                                  : fmt::format("{:.4g}", tick);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 4, label);
  }
  for (double tick : ticks(1, std::max<double>(static_cast<double>(scale.steps()), 2), 10)) {
    if (tick != std::round(tick)) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", scale.x(tick),
                       kHeight - kBottom + 18, std::lround(tick));
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n",
                     kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 6);
  svg += fmt::format("<text class=\"title\" x=\"0\" y=\"14\">{}</text>\n", chart.title);
  return svg;
}

std::string draw_series(const Series& series, const Scale& scale) {
  std::string points;
  for (size_t i = 0; i < series.values.size(); ++i)
    points += fmt::format("{:.1f},{:.1f} ", scale.x(static_cast<double>(i + 1)), scale.y(series.values[i]));
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", series.css_class, points);
}

std::string draw_mark(const Mark& mark, const Scale& scale) {
  const double x = scale.x(mark.after_step + 0.5);
  return fmt::format(
      "<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
      "<text x=\"{3:.1f}\" y=\"{4}\">{5}</text>\n",
      x, kTop, kHeight - kBottom, x + 6, kTop + 12, mark.label);
}

// Right of the title, from the right edge to the left.
std::string draw_legend(const Chart& chart) {
  std::string svg;
  double x = kWidth - kRight;
  for (auto series = chart.series.rbegin(); series != chart.series.rend(); ++series) {
    x -= 7.0 * static_cast<double>(series->label.size()) + 40;
    svg +=
        fmt::format("<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"10\" y2=\"10\"/><text x=\"{}\" y=\"14\">{}</text>\n",
                    series->css_class, x, x + 24, x + 30, series->label);
  }
  return svg;
}

}  // namespace

std::string draw_chart(const Chart& chart) {
  const Scale scale(chart);
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight, chart.title);
  svg += draw_axes(chart, scale);
  for (const Mark& mark : chart.marks) svg += draw_mark(mark, scale);
  for (const Series& series : chart.series) svg += draw_series(series, scale);
  return svg + draw_legend(chart) + "</svg>\n";
}
