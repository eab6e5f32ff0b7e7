#pragma once
// A page about a run: text, curves, bars, tables and pictures of tensors. One file of HTML that needs no other, in the
// reader's light or dark colours, on wide and narrow screens. `./dev demo` writes one; docs/pictures.md shows another.
//
//   sherd::Report report("My run");
//   report.section("Loss").chart(sherd::LineChart{.title = "loss", .series = {{"4 ranks", losses}}});
//   report.section("Where it lies").picture("w", w);
//   report.write("run.html", world.group());

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sherd/chart.h"
#include "sherd/collectives.h"
#include "sherd/comm_debug.h"
#include "sherd/group.h"
#include "sherd/picture.h"

namespace sherd {

struct ReportTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // columns of numbers are set to the right
};

/// Tensors whose memory is counted together: "parameters", "gradients".
struct MemoryPart {
  std::string name;
  std::vector<at::Tensor> tensors;
};

/// Bytes that this rank has of these tensors, distributed or not. Undefined ones count nothing.
int64_t bytes_here(std::span<const at::Tensor> tensors);

/// One bar per rank of the group: what it has of each part. Every rank of the group calls it, with parts of the same
/// names.
BarChart memory_chart(const Group& group, std::string title, std::span<const MemoryPart> parts);

/// Calls return the report, so that they can be chained. In texts, what stands between backticks is set as code;
/// everything else is shown as it is.
class Report {
 public:
  explicit Report(std::string title);

  Report& section(const std::string& title);
  Report& text(const std::string& paragraph);
  /// In small type.
  Report& note(const std::string& paragraph);
  Report& chart(const LineChart& chart);
  Report& chart(const BarChart& chart);
  /// Throws c10::ValueError where a row has another number of cells than there are columns.
  Report& table(const ReportTable& table);
  /// A picture of any tensor that visualize_sharding() draws; those that follow each other stand side by side.
  Report& picture(const std::string& title, const at::Tensor& tensor);
  Report& picture(const std::string& title, const Layout& layout);
  /// What was sent: bytes received by collective and axis as bars, forward and backward apart, and a table with the
  /// modules that it was for.
  Report& communication(const CommDebugMode& debug);
  Report& communication(std::span<const CommRecord> records);
  /// The same of a CommRecorder, which knows collectives, groups and dtypes.
  Report& communication(std::span<const CollectiveCall> calls);

  std::string html() const;

  /// Writes the page, in this process alone. Throws c10::ValueError with the path and the reason where it cannot.
  void write(const std::string& path) const;
  /// The same for all ranks: the group's first writes its page, and where it cannot all throw. Every rank calls it.
  void write(const std::string& path, const Group& group) const;

 private:
  Report& add(std::string_view html);
  Report& picture_of(const std::string& title, const std::string& svg);

  std::string title_;
  std::string body_;
  bool in_pictures_ = false;
};

}  // namespace sherd
