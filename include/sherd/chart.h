#pragma once
// Charts as SVG elements: curves over steps, and bars. sherd::Report puts them on a page. They can be read on light and
// dark paper.

#include <cstdint>
#include <string>
#include <vector>

namespace sherd {

struct ChartSeries {
  std::string label;
  std::vector<double> values;  // at steps 1, 2, 3, ...; what is not finite is drawn at the upper edge
  bool is_limit = false;       // a dashed line: not measured, but allowed
};

/// A vertical line between a step and the next.
struct ChartMark {
  int64_t after_step = 0;
  std::string label;
};

/// Where two series are equal both are seen: earlier ones are drawn thicker.
struct LineChart {
  std::string title;  // of the vertical axis
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks = {};
  bool logarithmic = false;  // values of 0 are drawn at the lower edge
  std::string steps = "step";
};

struct ChartBar {
  std::string label;
  std::vector<double> values;  // one per part; they are stacked
};

struct BarChart {
  std::string title;
  std::vector<std::string> parts;  // what the values of a bar are, for the legend
  std::vector<ChartBar> bars;
  enum class Unit { number, bytes } unit = Unit::number;
};

/// Throw std::invalid_argument where a bar has more values than there are parts, or a value that is negative or not
/// finite. A chart without values is an empty one.
std::string draw_svg(const LineChart& chart);
std::string draw_svg(const BarChart& chart);

}  // namespace sherd
