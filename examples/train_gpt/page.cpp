#include "page.h"

#include <fmt/format.h>

#include <algorithm>

#include "train.h"

namespace {

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string meshes_text(const Outcome& outcome) {
  std::string text;
  for (const Leg& leg : outcome.legs)
    text += fmt::format("{}`{}`{}", text.empty() ? "Mesh " : ", then ", leg.mesh,
                        leg.fully_sharded ? ", fully sharded" : "");
  return text;
}

void tell_curves(sherd::Report& page, const Outcome& outcome) {
  const std::string many = fmt::format("{} ranks", outcome.ranks);
  const auto differences = relative_differences(outcome.sharded, outcome.alone);
  std::vector<sherd::ChartMark> marks;
  if (outcome.legs.size() == 2)
    marks = {{outcome.legs[0].steps, fmt::format("saved; resumed on {}", outcome.legs[1].mesh)}};
  page.section("The curves")
      .chart(sherd::LineChart{
          .title = "loss", .series = {{"one rank", outcome.alone}, {many, outcome.sharded}}, .marks = marks});
  for (auto& mark : marks) mark.label.clear();
  const std::vector<double> allowed(differences.size(), outcome.tolerance);
  page.chart(sherd::LineChart{.title = "relative difference",
                              .series = {{"difference", differences}, {"allowed", allowed, /*is_limit=*/true}},
                              .marks = marks,
                              .logarithmic = true});
  page.note(fmt::format("{} steps took {:.1f} s on {} and {:.1f} s on one, on the same machine.",
                        outcome.sharded.size(), outcome.sharded_seconds, many, outcome.alone_seconds));
}

}  // namespace

sherd::Report make_page(const Outcome& outcome) {
  const auto differences = relative_differences(outcome.sharded, outcome.alone);
  const double largest = differences.empty() ? 0 : *std::max_element(differences.begin(), differences.end());
  sherd::Report page(fmt::format("A small GPT, trained on {} ranks and on one", outcome.ranks));
  page.text(fmt::format(
      "{}; {} on {}, ranks as {}. The model is the same plain `torch::nn` module in both runs, from the same weights. "
      "After {} steps the two losses differ by at most {:.1e} of their value; {:.0e} is allowed.",
      meshes_text(outcome), outcome.dtype, outcome.device, outcome.as_processes ? "processes" : "threads",
      outcome.sharded.size(), largest, outcome.tolerance));
  if (outcome.legs.size() == 2)
    page.text(
        fmt::format("After step {} the ranks saved a checkpoint on mesh `{}` ({} in {:.0f} ms). A model with other "
                    "weights, on mesh "
                    "`{}`, loaded it ({:.0f} ms) and went on: each rank read the parts that it has there.",
                    outcome.legs[0].steps, outcome.legs[0].mesh, mebibytes(outcome.checkpoint_bytes),
                    1e3 * outcome.save_seconds, outcome.legs[1].mesh, 1e3 * outcome.load_seconds));
  tell_curves(page, outcome);

  page.section("Where parameters lie")
      .text("The numbers in the boxes are ranks: ranks that share a box hold the same data.");
  for (const Leg& leg : outcome.legs) {
    page.text(fmt::format("On `{}`:", leg.mesh));
    for (const auto& picture : leg.pictures) page.picture(picture.name, picture.layout);
  }

  page.section("What one step sends").text("As rank 0 called it, from the batch to the loss that was read.");
  for (const Leg& leg : outcome.legs) page.text(fmt::format("On `{}`:", leg.mesh)).communication(leg.sent);

  page.section("What each rank holds").text("After the last step, beside a rank that trains the same model alone.");
  for (const Leg& leg : outcome.legs) page.text(fmt::format("On `{}`:", leg.mesh)).chart(leg.memory);
  return page;
}
