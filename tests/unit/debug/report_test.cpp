#include "sherd/report.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "error/rank_errors.h"
#include "sherd/dtensor.h"
#include "sherd/local_shards.h"
#include "sherd/sharded_tensor.h"
#include "sherd/world.h"

namespace sherd {
namespace {

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string path_of(const std::string& name) {
  return ::testing::TempDir() + "sherd_report_" + std::to_string(::getpid()) + "_" + name;
}

TEST(ReportTest, SectionsStandInOrder) {
  Report report("A <run>");
  report.section("Loss")
      .text("on `[dp=2]` & more")
      .chart(LineChart{.title = "loss", .series = {{"x", {2, 1}}}})
      .note("small")
      .section("Where it lies")
      .picture("w", torch::zeros({2, 2}))
      .picture("v", Layout{Mesh({{"dp", 2}}), {4}, {Shard(0)}})
      .table({{"name", "bytes"}, {{"w", "16 B"}, {"v", ""}}});
  const std::string page = report.html();
  size_t at = 0;
  for (const char* piece :
       {"<title>A &lt;run&gt;</title>", "<h1>A &lt;run&gt;</h1>", "<h2>Loss</h2>",
        "<p>on <code>[dp=2]</code> &amp; more</p>", "<polyline ", "<p class=\"soft\">small</p>",
        "<h2>Where it lies</h2>", "<div class=\"pictures\">", "<code>w</code>", "<code>v</code>", "</figure>\n</div>",
        "<th>name</th>", "<th class=\"number\">bytes</th>", "<td class=\"number\">16 B</td>", "</html>"}) {
    const size_t found = page.find(piece, at);
    ASSERT_NE(found, std::string::npos) << piece << "\n" << page;
    at = found;
  }
  // It needs no other file.
  for (const char* piece : {"src=", "href=", "url(", "@import"})
    EXPECT_EQ(page.find(piece), std::string::npos) << piece;
}

TEST(ReportTest, AReportOfNothingIsAPage) {
  const std::string page = Report("")
                               .communication(std::vector<CollectiveCall>())
                               .communication(std::vector<CommRecord>())
                               .table({{}, {}})
                               .html();
  EXPECT_NE(page.find("Nothing was sent."), std::string::npos);
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

TEST(ReportTest, BackticksThatDoNotCloseAreText) {
  EXPECT_NE(Report("x").text("a `b` c ` d").html().find("<p>a <code>b</code> c ` d</p>"), std::string::npos);
}

TEST(ReportTest, CommunicationIsCountedByKindAndGroup) {
  std::string page;
  spawn(2, [&](World& world) {
    CommRecorder recorder;
    const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
    const auto x = ones({4, 256}, mesh, {Shard(0)});
    full_tensor(x);
    full_tensor(x);
    if (world.rank() == 0) page = Report("x").communication(recorder.calls()).html();
  });
  EXPECT_NE(page.find("<td>all_gather</td>"), std::string::npos) << page;
  EXPECT_NE(page.find("<td class=\"number\">4.0 KiB</td><td class=\"number\">2</td>"), std::string::npos) << page;
}

TEST(ReportTest, CommunicationOfLayersAlikeIsOneRow) {
  std::vector<CommRecord> records(4);
  for (size_t layer = 0; layer < 3; ++layer) {
    CommRecord& record = records[layer];
    record.collective = "all_reduce";
    record.axis = "tp";
    record.bytes = 1024;
    record.operation = "aten::addmm";
    record.module = "layers." + std::to_string(layer) + ".up";
    record.pass = CommPass::backward;
  }
  records[3].collective = "all_gather";
  records[3].axis = "dp";
  records[3].bytes = 4096;
  const std::string page = Report("x").communication(records).html();
  EXPECT_NE(page.find("<td>all_reduce</td><td>tp</td><td>backward</td><td class=\"number\">3.0 KiB</td>"
                      "<td class=\"number\">3</td><td>addmm</td><td>layers.*.up</td>"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("<td>program</td>"), std::string::npos);
  EXPECT_NE(page.find("<td>all</td><td></td><td></td><td class=\"number\">7.0 KiB</td>"), std::string::npos);
  EXPECT_NE(page.find("all_reduce tp: backward, 3.0 KiB"), std::string::npos);
}

TEST(ReportTest, MemoryIsWhatEachRankHas) {
  spawn(3, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {3}, {"dp"});
    const std::vector<at::Tensor> sharded = {zeros({7, 4}, mesh, {Shard(0)}), at::Tensor()};
    const std::vector<at::Tensor> plain = {torch::zeros({10}, at::kDouble)};
    EXPECT_EQ(bytes_here(sharded), world.rank() == 2 ? 16 : 48);
    const std::vector<MemoryPart> parts = {{"parameters", sharded}, {"others", plain}};
    const BarChart chart = memory_chart(world.group(), "memory", parts);
    ASSERT_EQ(chart.bars.size(), 3u);
    EXPECT_EQ(chart.parts, (std::vector<std::string>{"parameters", "others"}));
    EXPECT_EQ(chart.bars[0].label, "rank 0");
    EXPECT_EQ(chart.bars[0].values, (std::vector<double>{48, 80}));
    EXPECT_EQ(chart.bars[2].values, (std::vector<double>{16, 80}));
  });
  const std::vector<at::Tensor> wrapper = {
      LocalShardsWrapper({torch::zeros({4, 2}), torch::zeros({4, 1})}, {{0, 0}, {0, 7}})};
  EXPECT_EQ(bytes_here(wrapper), 48);
}

TEST(ReportTest, TheFirstRankWritesThePage) {
  const std::string path = path_of("written.html");
  spawn(3, [&](World& world) {
    Report report("by rank " + std::to_string(world.rank()));
    report.write(path, world.group());
    EXPECT_NE(contents(path).find("<h1>by rank 0</h1>"), std::string::npos);
  });
  Report("alone").write(path);
  EXPECT_NE(contents(path).find("<h1>alone</h1>"), std::string::npos);
  std::remove(path.c_str());
}

TEST(ReportErrors, AFolderThatIsNotThereIsAnErrorOnEveryRank) {
  const std::string path = path_of("missing") + "/report.html";
  const auto errors = testing::errors_of_ranks(3, [&](World& world) { Report("x").write(path, world.group()); });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("Report::write: the page cannot be written"), std::string::npos) << error;
    EXPECT_NE(error.find("path: " + path), std::string::npos) << error;
    EXPECT_EQ(error, errors.front());
  }
  EXPECT_EQ(testing::value_error([&] { Report("x").write(path); }),
            "Report::write: the page cannot be written\n  path: " + path +
                "\n  reason: No such file or directory\n  help: mkdir -p " + path_of("missing"));
}

TEST(ReportErrors, AFullDiskIsToldAndNotTakenForAPage) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(testing::value_error([] { Report("x").write("/dev/full"); }),
            "Report::write: the page cannot be written\n  path: /dev/full\n  reason: No space left on device\n"
            "  help: write to a folder of yours");
}

TEST(ReportErrors, ARowOfAnotherLengthIsRefused) {
  EXPECT_EQ(testing::value_error([] {
              Report("x").table({{"a", "b"}, {{"1"}}});
            }),
            "Report::table: a row has another number of cells than there are columns\n  row: 1\n  cells: 1\n"
            "  columns: 2\n  help: give empty texts for cells that have nothing to say");
}

TEST(ReportErrors, RanksThatNameOtherPartsAreAnErrorOnTheRanksThatSeeIt) {
  const auto errors = testing::errors_of_ranks(2, [&](World& world) {
    const std::vector<MemoryPart> parts(static_cast<size_t>(world.rank()) + 1, MemoryPart{"p", {}});
    memory_chart(world.group(), "memory", parts);
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("memory_chart: a rank has another number of parts"), std::string::npos) << error;
}

}  // namespace
}  // namespace sherd
