#pragma once
// A line chart as an SVG element, for the demo's page.

#include <string>
#include <vector>

struct Series {
  std::string label;
  std::string css_class;  // of its line; the page gives it colour and width
  std::vector<double> values;
};

/// A vertical line between a step and the next.
struct Mark {
  int after_step = 0;
  std::string label;
};

struct Chart {
  std::string title;  // of the vertical axis
  std::vector<Series> series;
  std::vector<Mark> marks = {};
  bool logarithmic = false;  // values of 0 are drawn at the lower edge
};

/// The series over steps 1, 2, 3, ... with axes and a legend.
std::string draw_chart(const Chart& chart);
