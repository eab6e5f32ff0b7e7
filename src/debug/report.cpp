#include "sherd/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/errors.h"
#include "debug/write_file.h"
#include "picture/escape.h"
#include "picture/page.h"
#include "sherd/visualize.h"

namespace sherd {
namespace {

using detail::escaped;

SvgOptions picture_look() { return {.width = 260, .max_cells = 12, .legend = false, .notes = {}}; }

// What stands between backticks is code.
std::string paragraph_html(const std::string& text) {
  std::string html;
  size_t from = 0;
  while (from <= text.size()) {
    const size_t open = text.find('`', from);
    const size_t close = open == std::string::npos ? open : text.find('`', open + 1);
    if (close == std::string::npos) break;
    html += fmt::format("{}<code>{}</code>", escaped(text.substr(from, open - from)),
                        escaped(text.substr(open + 1, close - open - 1)));
    from = close + 1;
  }
  return html + escaped(text.substr(from));
}

bool is_number(const std::string& cell) { return !cell.empty() && cell.find_first_of("0123456789") == 0; }

}  // namespace

Report::Report(std::string title) : title_(std::move(title)) {}

Report& Report::add(std::string_view html) {
  if (in_pictures_) body_ += "</div>\n";
  in_pictures_ = false;
  body_ += html;
  return *this;
}

Report& Report::section(const std::string& title) { return add(fmt::format("<h2>{}</h2>\n", escaped(title))); }
Report& Report::text(const std::string& paragraph) {
  return add(fmt::format("<p>{}</p>\n", paragraph_html(paragraph)));
}
Report& Report::note(const std::string& paragraph) {
  return add(fmt::format("<p class=\"soft\">{}</p>\n", paragraph_html(paragraph)));
}

Report& Report::chart(const LineChart& chart) {
  return add(fmt::format("<div class=\"chart wide\">\n{}</div>\n", draw_svg(chart)));
}

Report& Report::chart(const BarChart& chart) {
  const std::string svg = detail::as_c10_errors([&] { return draw_svg(chart); });
  return add(fmt::format("<div class=\"chart wide\">\n{}</div>\n", svg));
}

Report& Report::table(const ReportTable& table) {
  std::vector<bool> has_numbers(table.columns.size(), !table.rows.empty());
  for (const auto& row : table.rows) {
    if (row.size() != table.columns.size())
      detail::throw_value_error(ErrorText("Report::table", "a row has another number of cells than there are columns")
                                    .fact("row", row.empty() ? "(empty)" : row.front())
                                    .fact("cells", std::to_string(row.size()))
                                    .fact("columns", std::to_string(table.columns.size()))
                                    .help("give empty texts for cells that have nothing to say"));
    for (size_t c = 0; c < row.size(); ++c) has_numbers[c] = has_numbers[c] && (row[c].empty() || is_number(row[c]));
  }
  const auto row_html = [&](const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (size_t c = 0; c < cells.size(); ++c)
      html +=
          fmt::format("<{0}{1}>{2}</{0}>", tag, has_numbers[c] ? " class=\"number\"" : "", paragraph_html(cells[c]));
    return html + "</tr>\n";
  };
  std::string html = "<div class=\"wide\"><table>\n" + row_html(table.columns, "th");
  for (const auto& row : table.rows) html += row_html(row, "td");
  return add(html + "</table></div>\n");
}

Report& Report::picture_of(const std::string& title, const std::string& svg) {
  if (!in_pictures_) body_ += "<div class=\"pictures\">\n";
  in_pictures_ = true;
  body_ += fmt::format("<figure><figcaption><code>{}</code></figcaption>\n{}</figure>\n", escaped(title), svg);
  return *this;
}

Report& Report::picture(const std::string& title, const at::Tensor& tensor) {
  return picture_of(title, visualize_sharding_svg(tensor, picture_look()));
}
Report& Report::picture(const std::string& title, const Layout& layout) {
  return picture_of(title, draw_svg(layout, picture_look()));
}

std::string Report::html() const {
  return detail::page(title_, fmt::format("<h1>{}</h1>\n{}{}", escaped(title_), body_, in_pictures_ ? "</div>\n" : ""));
}

void Report::write(const std::string& path) const {
  const int why = detail::write_file(path, html());
  if (why == 0) return;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  detail::throw_value_error(ErrorText("Report::write", "the page cannot be written")
                                .fact("path", path)
                                .fact("reason", std::strerror(why))
                                .help(why == ENOENT ? "mkdir -p " + folder : "write to a folder of yours"));
}

void Report::write(const std::string& path, const Group& group) const {
  agree(group, "Report::write", [&] {
    if (group.rank() == 0) write(path);
  });
}

}  // namespace sherd
