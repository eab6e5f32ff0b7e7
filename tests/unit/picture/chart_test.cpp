#include "sherd/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sherd {
namespace {

size_t count(const std::string& text, const std::string& piece) {
  size_t found = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

TEST(ChartTest, EverySeriesIsALineAndAKey) {
  const std::string svg = draw_svg(LineChart{
      .title = "loss & more", .series = {{"one <rank>", {3, 2, 1}}, {"four", {3, 2, 1}}}, .marks = {{2, "saved"}}});
  EXPECT_EQ(count(svg, "<polyline "), 2u);
  EXPECT_NE(svg.find("loss &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("one &lt;rank&gt;"), std::string::npos);
  EXPECT_NE(svg.find(">saved<"), std::string::npos);
  // The first is drawn below the other, and is seen on both sides of it.
  EXPECT_LT(svg.find("stroke-width=\"6\""), svg.find("stroke-width=\"2\""));
}

TEST(ChartTest, AnyNumbersAreDrawn) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<std::vector<double>> lists = {
      {}, {1}, {0, 0, 0}, {nan, nan}, {1, inf, -inf, nan, 2}, {1e300, -1e300}, {1e-300, 2e-300}, {5e9, 5e9}};
  for (const auto& values : lists)
    for (const bool logarithmic : {false, true}) {
      const std::string svg = draw_svg(LineChart{.title = "x", .series = {{"y", values}}, .logarithmic = logarithmic});
      EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
      EXPECT_LT(svg.size(), 10'000u);
    }
}

TEST(ChartTest, BarsAreToScaleAndSayTheirSums) {
  const std::string svg = draw_svg(BarChart{.title = "memory",
                                            .parts = {"parameters", "gradients"},
                                            .bars = {{"rank 0", {1024, 2048}}, {"rank 1", {6144}}, {"rank 2", {}}},
                                            .unit = BarChart::Unit::bytes});
  EXPECT_EQ(count(svg, "<rect "), 3u);
  EXPECT_NE(svg.find(">3.0 KiB<"), std::string::npos);
  EXPECT_NE(svg.find(">6.0 KiB<"), std::string::npos);
  EXPECT_NE(svg.find(">0 B<"), std::string::npos);
  EXPECT_NE(svg.find("rank 0: gradients, 2.0 KiB"), std::string::npos);
  EXPECT_TRUE(draw_svg(BarChart{.title = "none", .parts = {}, .bars = {}}).starts_with("<svg "));
}

std::string error_of(const BarChart& chart) {
  try {
    draw_svg(chart);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ChartTest, WhatCannotBeABarIsRefused) {
  EXPECT_EQ(error_of({.title = "x", .parts = {"a"}, .bars = {{"b", {1, 2}}}}),
            "draw_svg: a bar has more values than the chart has parts\n  bar: b\n  values: 2\n  parts: 1\n"
            "  help: BarChart{.title = ..., .parts = {\"parameters\", \"gradients\"}, ...}");
  EXPECT_EQ(error_of({.title = "x", .parts = {"a"}, .bars = {{"b", {-1}}}}),
            "draw_svg: the value of a bar is negative or not a finite number\n  bar: b\n  value: -1\n"
            "  help: a LineChart takes any numbers");
  EXPECT_NE(error_of({.title = "x", .parts = {"a"}, .bars = {{"b", {std::nan("")}}}}), "");
}

}  // namespace
}  // namespace sherd
