#include "sherd/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "property/random_layout.h"

namespace sherd {
namespace {

const std::string kGoldenText = SHERD_SOURCE_DIR "/tests/golden/pictures.txt";
const std::string kGoldenPage = SHERD_SOURCE_DIR "/tests/golden/pictures.html";

// SHERD_WRITE_GOLDENS=1 writes tests/golden/pictures.* anew from the tensors in pictures.txt; look at the difference.
bool writes_goldens() { return std::getenv("SHERD_WRITE_GOLDENS") != nullptr; }

Layout layout_of(const std::string& mesh, const std::string& tensor) {
  Layout layout{parse_mesh(mesh), {}, {}};
  TensorText text = parse_tensor(tensor, layout.mesh);
  layout.shape = std::move(text.shape);
  layout.placements = std::move(text.placements);
  return layout;
}

struct Golden {
  std::string mesh, tensor, picture;
};

// Blocks of "=== mesh  tensor", then the picture.
std::vector<Golden> read_goldens() {
  std::vector<Golden> goldens;
  std::ifstream file(kGoldenText);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      const size_t cut = line.find("  ");
      goldens.push_back({line.substr(4, cut - 4), line.substr(cut + 2), ""});
    } else if (!goldens.empty()) {
      goldens.back().picture += line + "\n";
    }
  }
  return goldens;
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t count(const std::string& text, const std::string& piece) {
  size_t found = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

// Characters, not bytes.
size_t longest_line(const std::string& text) {
  size_t longest = 0, current = 0;
  for (char c : text) {
    if (c == '\n')
      current = 0;
    else if ((c & 0xc0) != 0x80)
      longest = std::max(longest, ++current);
  }
  return longest;
}

TEST(PictureTest, TextIsAsRecorded) {
  const auto goldens = read_goldens();
  ASSERT_GT(goldens.size(), 10u);
  std::string written;
  for (const Golden& golden : goldens) {
    const std::string picture = draw_text(layout_of(golden.mesh, golden.tensor)) + "\n";
    written += "=== " + golden.mesh + "  " + golden.tensor + "\n" + picture;
    if (!writes_goldens()) {
      EXPECT_EQ(picture, golden.picture);
    }
  }
  if (writes_goldens()) std::ofstream(kGoldenText) << written;
}

TEST(PictureTest, PageIsAsRecorded) {
  const std::vector<TitledLayout> pictures = {
      {"a grid", layout_of("[dp=2, tp=2]", "f32[8@dp, 6@tp]")},
      {"uneven, <partial>", layout_of("[dp=2, tp=4]", "f32[10@tp] P(sum)@dp")},
      {"a scalar", layout_of("[dp=2]", "f32[]")},
      {"nothing", layout_of("[dp=2]", "f32[0@dp, 4]")},
  };
  const std::string page = draw_html(pictures);
  if (writes_goldens()) std::ofstream(kGoldenPage) << page;
  EXPECT_EQ(page, contents(kGoldenPage));
}

TEST(PictureTest, AThousandRanksAreAShortPicture) {
  const std::string mesh = "[a=16, b=16, c=16]";
  for (const char* tensor : {"f32[100000000@a@b@c]", "f32[100000000@a@b@c, 8]", "f32[4096@a@b, 4096@c]",
                             "f32[9, 100000000@a@b, 1000@c]", "f32[1000000000@a(split=1000000)@b, 4]"}) {
    const std::string picture = draw_text(layout_of(mesh, tensor));
    EXPECT_LE(count(picture, "\n"), 2u * 16 + 8) << picture;
    EXPECT_LE(longest_line(picture), 100u) << picture;
    EXPECT_NE(picture.find("left out"), std::string::npos) << picture;
    EXPECT_LE(draw_svg(layout_of(mesh, tensor)).size(), 1'000'000u);
  }
}

TEST(PictureTest, MillionsOfRanksAreDrawnToo) {
  const std::string picture = draw_text(layout_of("[a=1000, b=10000]", "f32[100000000@b] P(sum)@a"));
  EXPECT_NE(picture.find("9998 of 10000 columns"), std::string::npos) << picture;
}

TEST(PictureTest, ColorsAreOnePerShardAndOnlyOnRequest) {
  const Layout layout = layout_of("[dp=2]", "f32[8@dp(split=2)]");
  EXPECT_EQ(draw_text(layout).find('\x1b'), std::string::npos);
  const std::string colored = draw_text(layout, {.color = true});
  EXPECT_EQ(count(colored, "\x1b[30;48;5;153m 0 \x1b[0m"), 2u);
  EXPECT_EQ(count(colored, "\x1b[30;48;5;223m 1 \x1b[0m"), 2u);
}

TEST(PictureTest, TitlesAreEscaped) {
  const std::vector<TitledLayout> one = {{"<b>\"x\" & y", layout_of("[dp=2]", "f32[8@dp]")}};
  EXPECT_NE(draw_html(one).find("<h2>&lt;b&gt;&quot;x&quot; &amp; y</h2>"), std::string::npos);
}

TEST(PictureProperty, EveryLayoutIsDrawnWithinItsBounds) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Layout layout = testing::RandomLayout(seed).layout(500);
    SCOPED_TRACE(testing::describe(layout));
    const std::string text = draw_text(layout, {.max_width = 60, .max_rows = 6});
    // Every line of the grid is as wide as the others; captions and notes are not counted.
    size_t grid_width = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("─") == std::string::npos) continue;
      grid_width = grid_width == 0 ? longest_line(line) : grid_width;
      ASSERT_EQ(longest_line(line), grid_width) << text;
      ASSERT_TRUE(grid_width <= 60 || count(line, "┬") <= 2) << text;
    }
    ASSERT_EQ(grid_width > 0, numel(layout.shape) > 0) << text;
    const std::string svg = draw_svg(layout);
    ASSERT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  }
}

}  // namespace
}  // namespace sherd
