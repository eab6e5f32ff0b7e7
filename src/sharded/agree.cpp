#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "comm/answers.h"
#include "comm/errors.h"
#include "sharded/layout.h"
#include "sherd/sharded_modules.h"

namespace sherd::sharded {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The first line of `text` that is another one in `other`.
std::string first_difference(const std::string& text, const std::string& other) {
  const auto mine = lines_of(text);
  const auto others = lines_of(other);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (i >= others.size() || mine[i] != others[i]) return mine[i];
  }
  return "nothing more";
}

}  // namespace

void agree(const GroupOptions& options, std::string_view operation, const std::function<std::string()>& say) {
  const detail::Holders holders = detail::holders_of(options);
  if (!holders.group()) {
    say();
    return;
  }
  const std::vector<int64_t>& ranks = holders.ranks();
  std::exception_ptr mine;
  std::vector<std::string> all;
  try {
    all = detail::answers_of_all(*holders.group(), operation, [&] {
      try {
        return say();
      } catch (...) {
        mine = std::current_exception();
        throw;
      }
    });
  } catch (...) {
    if (mine) std::rethrow_exception(mine);  // of its own class
    throw;
  }
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    detail::throw_value_error(
        ErrorText(operation, fmt::format("ranks {} and {} ask for different things", ranks[0], ranks[i]))
            .fact(fmt::format("rank {}", ranks[0]), first_difference(all[0], all[i]))
            .fact(fmt::format("rank {}", ranks[i]), first_difference(all[i], all[0]))
            .help("the same call on every rank"));
  }
}

}  // namespace sherd::sharded
