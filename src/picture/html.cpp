#include <fmt/format.h>

#include "picture/escape.h"
#include "picture/page.h"
#include "sherd/picture.h"

namespace sherd {

std::string draw_html(std::span<const TitledSvg> pictures) {
  std::string body;
  for (const TitledSvg& picture : pictures)
    body += fmt::format("<section>\n<h2>{}</h2>\n<div class=\"wide\">\n{}</div>\n</section>\n",
                        detail::escaped(picture.title), picture.svg);
  return detail::page("layouts", body);
}

std::string draw_html(std::span<const TitledLayout> pictures, const SvgOptions& options) {
  std::vector<TitledSvg> drawn;
  for (const TitledLayout& picture : pictures) drawn.push_back({picture.title, draw_svg(picture.layout, options)});
  return draw_html(drawn);
}

}  // namespace sherd
