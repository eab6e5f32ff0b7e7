#include "comm/link.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <thread>

#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"

namespace sherd::detail {
namespace {

constexpr const char* kFailureKey = "sherd/failed";
// A dying rank needs a moment to leave its message, and a slow one to notice that the group broke.
constexpr std::chrono::milliseconds kGrace{2000};
constexpr std::chrono::milliseconds kPoll{20};

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void Link::post_failure(const std::string& message) const {
  if (store) {
    try {
      store->compareSet(kFailureKey, {}, bytes(fmt::format("{} {}", rank, message)));
    } catch (const c10::Error&) {
      // The store went down with rank 0: the others have lost their connections and know that something is wrong.
    }
  }
  if (hubs) hubs->fail(rank, message);
}

std::optional<std::pair<int64_t, std::string>> Link::find_failure() const {
  if (!store || !store->check({kFailureKey})) return std::nullopt;
  const std::vector<uint8_t> value = store->get(kFailureKey);
  const std::string text(value.begin(), value.end());
  const size_t space = text.find(' ');
  return std::pair(std::stoll(text.substr(0, space)), text.substr(space + 1));
}

std::string Link::explain_broken_call(const char* operation, const std::vector<int64_t>& ranks,
                                      const std::string& group, const std::string& cause) const {
  const auto key = [&](int64_t r) { return fmt::format("sherd/broken/{}/{}", group, r); };
  const auto failed_text = [&](const std::pair<int64_t, std::string>& failure) {
    return ErrorText(operation, failed_problem(failure.first))
        .fact(fmt::format("rank {}", failure.first), failure.second)
        .help(failed_help(failure.first))
        .str();
  };
  std::vector<int64_t> missing;
  try {
    store->set(key(rank), bytes("here"));
    const auto end = std::chrono::steady_clock::now() + kGrace;
    do {
      if (const auto failure = find_failure(); failure && failure->first != rank) return failed_text(*failure);
      missing.clear();
      for (const int64_t r : ranks) {
        if (!store->check({key(r)})) missing.push_back(r);
      }
      std::this_thread::sleep_for(kPoll);
    } while (!missing.empty() && std::chrono::steady_clock::now() < end);
  } catch (const c10::Error&) {
    return ErrorText(operation, "rank 0, which keeps the store of the world, is gone")
        .fact("group", group)
        .fact("cause", first_line(cause))
        .help("look at the output of rank 0")
        .str();
  }
  if (missing.empty()) {
    return ErrorText(operation, "the transport broke")
        .fact("group", group)
        .fact("cause", first_line(cause))
        .help("SHERD_CHECK=1 compares what the ranks call")
        .str();
  }
  return ErrorText(operation, missing_problem(missing))
      .fact("group", group)
      .fact("cause", first_line(cause))
      .help(kMissingHelp)
      .str();
}

}  // namespace sherd::detail
