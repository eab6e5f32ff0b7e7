#pragma once
// What charts share: colours, the title and the legend.

#include <string>
#include <string_view>
#include <vector>

namespace sherd::detail {

constexpr double kChartWidth = 560;

/// Strong enough for lines on white and on black; after Okabe and Ito, for readers who see few colours.
const char* chart_color(size_t index);

struct LegendKey {
  std::string label;
  std::string shape;  // SVG with {x} and {y} where its left middle is
};

/// The SVG element: `body`, and above it the title and the legend.
std::string chart_frame(std::string_view title, double height, std::string_view body,
                        const std::vector<LegendKey>& keys);

/// The text, or its two ends with "..." between them.
std::string shortened(std::string_view text, double characters);

}  // namespace sherd::detail
