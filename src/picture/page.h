#pragma once
#include <string>
#include <string_view>

namespace sherd::detail {

/// A page of HTML that needs no other file, in the reader's colours, for wide and narrow screens. `title` is text,
/// `body` is HTML.
std::string page(std::string_view title, std::string_view body);

}  // namespace sherd::detail
