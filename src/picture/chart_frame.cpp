#include "picture/chart_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "picture/escape.h"

namespace sherd::detail {
namespace {

constexpr double kCharacter = 6.8;

std::string put(std::string shape, double x, double y) {
  for (const auto& [name, value] : {std::pair<std::string_view, double>{"{x}", x}, {"{y}", y}}) {
    const size_t at = shape.find(name);
    if (at != std::string::npos) shape.replace(at, name.size(), fmt::format("{:.1f}", value));
  }
  return shape;
}

}  // namespace

const char* chart_color(size_t index) {
  static constexpr std::array kColors = {"#e69f00", "#2f7fd1", "#1a9e77", "#c25f9c", "#d5643a", "#8a8f98"};
  return kColors[index % kColors.size()];
}

std::string chart_frame(std::string_view title, double height, std::string_view body,
                        const std::vector<LegendKey>& keys) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{0}\" width=\"{1}\" height=\"{2}\" "
      "viewBox=\"0 0 {1} {2}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>svg:root {{ color: #1b1d20; }} @media (prefers-color-scheme: dark) {{ svg:root {{ color: #e6e8eb; "
      "}} }}</style>\n"
      "<text x=\"0\" y=\"14\" font-weight=\"600\" fill=\"currentColor\">{0}</text>\n",
      escaped(title), kChartWidth, height);
  svg += body;
  // Right of the title, from the right edge to the left.
  double x = kChartWidth - 8;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    x -= kCharacter * static_cast<double>(key->label.size()) + 42;
    svg += put(key->shape, x, 10);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"14\" fill=\"currentColor\">{}</text>\n", x + 28, escaped(key->label));
  }
  return svg + "</svg>\n";
}

std::string shortened(std::string_view text, double characters) {
  const auto most = static_cast<size_t>(std::max(characters, 8.0));
  if (text.size() <= most) return std::string(text);
  const size_t head = (most - 3) / 2, tail = most - 3 - head;
  return std::string(text.substr(0, head)) + "..." + std::string(text.substr(text.size() - tail));
}

}  // namespace sherd::detail
