#include "comm/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "comm/errors.h"
#include "sherd/collectives.h"

namespace sherd {

std::vector<std::string> detail::answers_of_all(const Group& group, std::string_view operation,
                                                const std::function<std::string()>& say) {
  constexpr char kFailed = 'x';
  std::string mine;
  try {
    mine = "=" + say();
  } catch (...) {
    mine = kFailed + message_of_current_exception();
  }
  std::vector<std::string> all = all_gather_text(group, mine);
  const auto failed =
      std::count_if(all.begin(), all.end(), [](const std::string& text) { return text.front() == kFailed; });
  ErrorText error(operation, fmt::format("{} of {} ranks failed", failed, group.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_failure = all[i].front() == kFailed;
    all[i].erase(0, 1);
    if (is_failure) error.fact(fmt::format("rank {}", group.ranks()[i]), all[i]);
  }
  if (failed > 0) throw_value_error(error.help("mend what these ranks say; no rank went on"));
  return all;
}

std::optional<detail::Difference> detail::find_difference(const Group& group, const std::string& text) {
  const auto hashes = all_gather_text(group, std::to_string(std::hash<std::string>()(text)));
  for (size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i] == hashes[0]) continue;
    const auto texts = all_gather_text(group, text);
    return Difference{group.ranks()[0], texts[0], group.ranks()[i], texts[i]};
  }
  return std::nullopt;
}

void agree(const Group& group, std::string_view operation, const std::function<void()>& check) {
  detail::answers_of_all(group, operation, [&] {
    check();
    return std::string();
  });
}

}  // namespace sherd
