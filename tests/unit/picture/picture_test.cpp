#include "sherd/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "picture/grid.h"
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

// Four boxes that no straight cut takes apart, around one that nobody holds.
BoxPicture boxes_with_a_hole() {
  return {.caption = "[3, 3] in boxes",
          .shape = {3, 3},
          .parts = {{"0", {{0, 0}, {1, 2}}}, {"1", {{0, 2}, {2, 1}}}, {"2", {{2, 1}, {1, 2}}}, {"3", {{1, 0}, {2, 1}}}},
          .notes = {"a windmill"}};
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
      {"slabs", layout_of("[dp=2, tp=2, ep=2]", "f32[6@dp, 8@tp, 10@ep]")},
      {"a third dim", layout_of("[dp=2]", "f32[6@dp, 8, 10]")},
      {"strided", layout_of("[dp=2, tp=2]", "f32[16@dp(split=3)@tp]")},
      {"ragged, copied", layout_of("[dp=3, tp=2]", "f32[10@dp(cuts=0:3:3:10), 4]")},
      {"left out", layout_of("[dp=64]", "f32[640@dp, 4]")},
  };
  std::vector<TitledSvg> drawn;
  for (const TitledLayout& picture : pictures)
    drawn.push_back({picture.title, draw_svg(picture.layout, {.max_cells = 8})});
  drawn.push_back({"boxes", draw_svg(boxes_with_a_hole(), {.width = 320})});
  const std::string page = draw_html(drawn);
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
  EXPECT_NE(picture.find("9996 of 10000 columns"), std::string::npos) << picture;
}

TEST(PictureTest, ColorsAreOnePerShardAndOnlyOnRequest) {
  const Layout layout = layout_of("[dp=2]", "f32[8@dp(split=2)]");
  EXPECT_EQ(draw_text(layout).find('\x1b'), std::string::npos);
  const std::string colored = draw_text(layout, {.color = true});
  EXPECT_EQ(count(colored, "\x1b[30;48;5;110m 0 \x1b[0m"), 2u);
  EXPECT_EQ(count(colored, "\x1b[30;48;5;209m 1 \x1b[0m"), 2u);
}

TEST(PictureTest, BoxesAreDrawnAsTheyLie) {
  EXPECT_EQ(draw_text(boxes_with_a_hole(), {.legend = true}),
            "[3, 3] in boxes\n"
            "  0   1   2   3\n"
            "0 ┌───────┬───┐\n"
            "  │ 0     │ 1 │\n"
            "1 ├───┬───┤   │\n"
            "  │ 3 │   │   │\n"
            "2 │   ├───┴───┤\n"
            "  │   │ 2     │\n"
            "3 └───┴───────┘\n"
            "a windmill\n"
            "rank 0: [0:1, 0:2]\n"
            "rank 1: [0:2, 2:3]\n"
            "rank 3: [1:3, 0:1]\n"
            "rank 2: [2:3, 1:3]\n");
}

TEST(PictureTest, BoxesMayOverlapBeEmptyOrMissing) {
  BoxPicture picture{.caption = "x", .shape = {4}, .parts = {{"0", {{0}, {3}}}, {"1", {{2}, {2}}}, {"2", {{4}, {0}}}}};
  EXPECT_EQ(draw_text(picture),
            "x\n"
            "0     2     3     4\n"
            "┌─────┬─────┬─────┐\n"
            "│  0  │ 0,1 │  1  │\n"
            "└─────┴─────┴─────┘\n");
  picture.parts.clear();
  EXPECT_EQ(draw_text(picture), "x\n0   4\n┌───┐\n│   │\n└───┘\n");
  picture.shape = {};
  picture.parts = {{"all", {{}, {}}}};
  EXPECT_EQ(draw_text(picture), "x\n┌─────┐\n│ all │\n└─────┘\n");
  picture.shape = {0, 4};
  picture.parts = {};
  EXPECT_EQ(draw_text(picture), "x\nthe tensor has no elements\n");
  EXPECT_NE(draw_svg(picture).find("the tensor has no elements"), std::string::npos);
}

TEST(PictureTest, ABoxOutsideTheTensorIsRefused) {
  for (const Box& box : {Box{{3}, {2}}, Box{{0, 0}, {1, 1}}, Box{{-1}, {2}}}) {
    const BoxPicture picture{.caption = "x", .shape = {4}, .parts = {{"7", box}}};
    try {
      draw_svg(picture);
      FAIL();
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "draw_svg: a box is not inside the tensor\n  box: " + to_string(box) +
                                  "\n  held by: 7\n  tensor: [4]\n"
                                  "  help: BoxPicture::shape is the size of the whole tensor");
    }
    EXPECT_THROW(draw_text(picture), std::invalid_argument);
  }
}

TEST(PictureTest, TenThousandBoxesAreAShortPicture) {
  BoxPicture picture{.caption = "many", .shape = {100, 1000}};
  for (int64_t i = 0; i < 10000; ++i) picture.parts.push_back({std::to_string(i), {{i / 100, i % 100 * 10}, {1, 10}}});
  const std::string text = draw_text(picture, {.legend = true});
  EXPECT_LE(count(text, "\n"), 60u) << text;
  EXPECT_NE(text.find("85 of 100 rows of cells left out"), std::string::npos) << text;
  EXPECT_LE(draw_svg(picture).size(), 1'000'000u);
}

TEST(PictureTest, TheLegendTellsWhatEachAxisDoes) {
  const auto legend = [](const std::string& mesh, const std::string& tensor) {
    const std::string text = draw_text(layout_of(mesh, tensor), {.legend = true});
    return text.substr(text.rfind("┘\n") + std::string("┘\n").size());
  };
  EXPECT_EQ(legend("[dp=2, tp=2]", "f32[8@dp, 6]"),
            "dp: cuts dim 0 in 2\ntp: 2 copies, whose ranks share a cell\n"
            "ranks 0,1: [0:4, 0:6]\nranks 2,3: [4:8, 0:6]\n");
  EXPECT_EQ(legend("[dp=4]", "f32[10@dp]"),
            "dp: cuts dim 0 in 4, unevenly: the last ranks have fewer rows\n"
            "rank 0: [0:3]\nrank 1: [3:6]\nrank 2: [6:9]\nrank 3: [9:10]\n");
  EXPECT_EQ(legend("[dp=2]", "f32[8@dp(split=2)]"),
            "dp: cuts dim 0 in 2, strided: a rank's rows lie in up to 2 pieces\n"
            "rank 0: [0:2] [4:6]\nrank 1: [2:4] [6:8]\n");
  EXPECT_EQ(legend("[dp=2]", "f32[8@dp(cuts=0:1:8)] "),
            "dp: cuts dim 0 in 2, ragged: where the user says\nrank 0: [0:1]\nrank 1: [1:8]\n");
  EXPECT_EQ(legend("[dp=2]", "f32[8] P(sum)@dp"),
            "P(sum)@dp: the value is the sum of what the ranks along dp hold\nranks 0+1: [0:8]\n");
  EXPECT_EQ(legend("[dp=12]", "f32[120@dp]").substr(0, 35), "dp: cuts dim 0 in 12\nrank 0: [0:10]");
  EXPECT_TRUE(legend("[dp=12]", "f32[120@dp]").ends_with("rank 7: [70:80]\nand 4 more\n"));
}

TEST(PictureTest, PartialsAreHatchedAndOthersAreNot) {
  EXPECT_NE(draw_svg(layout_of("[dp=2]", "f32[8] P(sum)@dp")).find("stroke-opacity"), std::string::npos);
  EXPECT_EQ(draw_svg(layout_of("[dp=2]", "f32[8@dp]")).find("stroke-opacity"), std::string::npos);
  EXPECT_EQ(draw_svg(layout_of("[dp=1]", "f32[8] P(sum)@dp")).find("stroke-opacity"), std::string::npos);
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

// The ranks that a label names; nothing where it leaves some out.
std::optional<std::vector<int64_t>> ranks_of(std::string label) {
  if (label.find("..") != std::string::npos) return std::nullopt;
  std::replace(label.begin(), label.end(), '+', ',');
  std::vector<int64_t> ranks;
  std::istringstream groups(label);
  for (std::string group; std::getline(groups, group, ',');) {
    const size_t dash = group.find('-');
    const int64_t first = std::stoll(group),
                  last = dash == std::string::npos ? first : std::stoll(group.substr(dash + 1));
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

TEST(PictureProperty, EveryRanksCellsAreItsBoxes) {
  int64_t compared = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Layout layout = testing::RandomLayout(seed).layout(40);
    SCOPED_TRACE(testing::describe(layout));
    if (numel(layout.shape) == 0) continue;
    const detail::LayoutGrid grid(layout, 200);
    const detail::Sheet sheet = grid.sheet(200, 200, 200);
    const int64_t dims[] = {grid.slabs().dim(), grid.rows().dim(), grid.columns().dim()};
    std::map<int64_t, std::vector<Box>> cells_of;
    bool names_all = true, draws_all = true;
    for (const std::string& note : grid.notes(sheet))
      draws_all = draws_all && note.find("is cut, too") == std::string::npos;
    for (size_t s = 0; s < sheet.slabs.size(); ++s)
      for (size_t r = 0; r < sheet.rows.size(); ++r)
        for (size_t c = 0; c < sheet.columns.size(); ++c) {
          const auto ranks = ranks_of(sheet.cells[s][r][c].label);
          names_all = names_all && ranks;
          Box box{Dims(layout.shape.size(), 0), layout.shape};
          const detail::Band* bands[] = {&sheet.slabs[s], &sheet.rows[r], &sheet.columns[c]};
          for (size_t i = 0; i < 3; ++i) {
            if (dims[i] < 0) continue;
            box.offset[static_cast<size_t>(dims[i])] = bands[i]->begin;
            box.size[static_cast<size_t>(dims[i])] = bands[i]->end - bands[i]->begin;
          }
          if (ranks)
            for (const int64_t rank : *ranks) cells_of[rank].push_back(box);
        }
    if (!names_all || !draws_all) continue;
    ++compared;
    for (int64_t i = 0; i < layout.mesh.size(); ++i) {
      const Dims at = layout.mesh.coordinate_at(i);
      int64_t drawn = 0, held = 0;
      for (const Box& box : local_boxes(layout, at)) held += numel(box);
      for (const Box& cell : cells_of[layout.mesh.rank_at(at)]) {
        drawn += numel(cell);
        int64_t inside = 0;
        for (const Box& box : local_boxes(layout, at))
          if (const auto common = intersect(cell, box)) inside += numel(*common);
        ASSERT_EQ(inside, numel(cell)) << to_string(cell);
      }
      ASSERT_EQ(drawn, held);
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace sherd
