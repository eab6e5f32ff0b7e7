#include "comm/answers.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "comm/errors.h"
#include "sherd/collectives.h"

namespace sherd {

namespace {

constexpr char kGave = '=';
constexpr char kWrongArgument = 'v';
constexpr char kFailed = 'x';

}  // namespace

bool detail::is_failure(const std::string& told) { return told.front() == kWrongArgument || told.front() == kFailed; }

std::string detail::telling_of(const std::function<std::string()>& say) {
  try {
    return kGave + say();
  } catch (const c10::ValueError&) {
    return kWrongArgument + message_of_current_exception();
  } catch (const std::invalid_argument&) {
    return kWrongArgument + message_of_current_exception();
  } catch (...) {
    return kFailed + message_of_current_exception();
  }
}

std::vector<std::string> detail::answers_in(std::vector<std::string> told, const Group& group,
                                            std::string_view operation, FailureKind kind) {
  const auto failed = std::count_if(told.begin(), told.end(), is_failure);
  const bool other_faults =
      std::any_of(told.begin(), told.end(), [](const std::string& text) { return text.front() == kFailed; });
  ErrorText error(operation, fmt::format("{} of {} ranks failed", failed, group.size()));
  for (size_t i = 0; i < told.size(); ++i) {
    const bool is_one = is_failure(told[i]);
    told[i].erase(0, 1);
    if (is_one) error.fact(fmt::format("rank {}", group.ranks()[i]), told[i]);
  }
  if (failed == 0) return told;
  error.help("mend what these ranks say; no rank went on");
  if (kind == FailureKind::as_told && other_faults) throw_error(error);
  throw_value_error(error);
}

std::vector<std::string> detail::answers_of_all(const Group& group, std::string_view operation,
                                                const std::function<std::string()>& say) {
  return answers_in(all_gather_text(group, telling_of(say)), group, operation, FailureKind::value_error);
}

std::optional<detail::Difference> detail::find_difference(const Group& group, const std::string& text) {
  // The largest hash is the smallest one, too: two numbers, however many ranks there are.
  const auto hash = static_cast<int64_t>(std::hash<std::string>()(text));
  const at::Tensor extremes = at::empty({2}, c10::ScalarType::Long);
  auto* numbers = extremes.mutable_data_ptr<int64_t>();
  numbers[0] = hash;
  numbers[1] = ~hash;
  all_reduce(group, extremes, ReduceOp::max).wait();
  if (numbers[0] == ~numbers[1]) return std::nullopt;
  const auto texts = all_gather_text(group, text);
  const auto other = std::find_if(texts.begin(), texts.end(), [&](const auto& told) { return told != texts[0]; });
  const auto place = static_cast<size_t>(other - texts.begin());
  return Difference{group.ranks()[0], texts[0], group.ranks().at(place), texts.at(place)};
}

void agree(const Group& group, std::string_view operation, const std::function<void()>& check) {
  detail::answers_of_all(group, operation, [&] {
    check();
    return std::string();
  });
}

}  // namespace sherd
