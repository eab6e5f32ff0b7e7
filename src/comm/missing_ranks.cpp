#include "comm/missing_ranks.h"

#include <fmt/format.h>

#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

std::string counted(const std::vector<int64_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
}

}  // namespace

std::string missing_problem(const std::vector<int64_t>& missing) { return counted(missing) + " never came"; }

std::string lost_problem(const std::vector<int64_t>& ranks) {
  return counted(ranks) + (ranks.size() == 1 ? " is" : " are") + " gone";
}

std::string gone_problem(const std::vector<int64_t>& ranks) {
  return counted(ranks) + (ranks.size() == 1 ? " has" : " have") + " already ended";
}

std::string failed_problem(int64_t rank) { return fmt::format("rank {} failed", rank); }

std::string failed_help(int64_t rank) {
  return fmt::format("mend what rank {} says; this rank stopped because of it", rank);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

std::vector<std::pair<std::string, std::string>> calls_by_rank(const std::vector<int64_t>& ranks,
                                                               const std::vector<CallShape>& calls) {
  std::vector<std::pair<std::vector<int64_t>, std::string>> kinds;
  for (size_t i = 0; i < calls.size(); ++i) {
    auto same = kinds.begin();
    while (same != kinds.end() && same->second != calls[i].description) ++same;
    if (same == kinds.end()) same = kinds.insert(kinds.end(), {{}, calls[i].description});
    same->first.push_back(ranks[i]);
  }
  std::vector<std::pair<std::string, std::string>> facts;
  for (auto& [who, what] : kinds) facts.emplace_back(counted(who), std::move(what));
  return facts;
}

}  // namespace sherd::detail
