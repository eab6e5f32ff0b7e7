#include "comm/link.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <thread>

#include "comm/errors.h"
#include "comm/missing_ranks.h"

namespace sherd::detail {
namespace {

constexpr const char* kFailureKey = "sherd/failed";
// A dying rank needs a moment to leave its message, and a slow one to notice that the group broke.
constexpr std::chrono::milliseconds kGrace{2000};
constexpr std::chrono::milliseconds kPoll{20};

// Why a rank is looking around: its patience came to an end, or a connection.
constexpr const char* kLate = "late";
constexpr const char* kClosed = "closed";

std::string end_key(int64_t rank) { return fmt::format("sherd/ended/{}", rank); }
// Set by a rank that needs the store no more.
std::string done_key(int64_t rank) { return fmt::format("sherd/done/{}", rank); }

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// The first line of what a transport said, without the place in its source ("[../gloo/transport/tcp/pair.cc:538] ").
std::string brief(const std::string& cause) {
  const std::string line = cause.substr(0, cause.find('\n'));
  const size_t end = line.find("] ");
  const bool has_place =
      line.starts_with("[") && end != std::string::npos && line.substr(0, end).find(".cc:") != std::string::npos;
  return has_place ? line.substr(end + 2) : line;
}

// True where a connection ended, rather than the patience of this rank.
bool closed_by_peer(const std::string& cause) {
  for (const char* sign : {"closed by peer", "reset by peer", "Broken pipe", "refused"}) {
    if (cause.find(sign) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void Link::post_failure(const std::string& message) const {
  trouble->add();
  if (store) {
    try {
      store->compareSet(kFailureKey, {}, bytes(fmt::format("{} {}", rank, message)));
    } catch (const std::exception&) {
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

void Link::post_end() const {
  if (hubs) hubs->leave(rank);
  if (!store || size == 1) return;
  try {
    store->set(end_key(rank), bytes("ended"));
    post_done();
  } catch (const std::exception&) {  // as above
  }
}

void Link::post_done() const { store->set(done_key(rank), bytes("done")); }

void Link::wait_until_done() const {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) {
    if (r != rank && !trouble->lost(r)) keys.push_back(done_key(r));
  }
  try {
    if (!keys.empty()) store->wait(keys, trouble->any() ? kGrace : timeout);
  } catch (const std::exception&) {  // one of them died, or takes longer than it may
  }
}

std::string Link::explain_broken_call(const char* operation, const std::vector<int64_t>& ranks,
                                      const std::string& group, const std::string& cause) const {
  trouble->add();
  const auto say = [&](const std::string& problem, const char* help) {
    return ErrorText(operation, problem).fact("group", group).fact("cause", brief(cause)).help(help).str();
  };
  if (!store) return say("the transport broke", "see what the transport says");
  try {
    std::string text = look_around(operation, ranks, group, brief(cause));
    post_done();
    return text;
  } catch (const std::exception&) {
    return say("rank 0, which keeps the store of the world, is gone", "look at the output of rank 0");
  }
}

std::string Link::explain_no_answer(const char* operation, int64_t asked, const std::string& cause,
                                    std::optional<std::chrono::milliseconds> waited) const {
  const auto end = std::chrono::steady_clock::now() + (waited ? std::chrono::milliseconds(0) : kGrace);
  try {
    do {
      if (const auto failure = find_failure(); failure && failure->first != rank) {
        trouble->add();
        return ErrorText(operation, failed_problem(failure->first))
            .fact(fmt::format("rank {}", failure->first), failure->second)
            .help(failed_help(failure->first));
      }
      if (store->check({end_key(asked)})) {
        return ErrorText(operation, gone_problem({asked}))
            .fact("cause", brief(cause))
            .help("sherd::shutdown_rpc(world) on every rank: it waits for the others");
      }
      std::this_thread::sleep_for(kPoll);
    } while (std::chrono::steady_clock::now() < end);
  } catch (const std::exception&) {  // the store went down with rank 0: what follows is true all the same
  }
  if (waited) {
    return ErrorText(operation, fmt::format("rank {} does not answer", asked))
        .fact("waited", seconds_text(*waited))
        .help(fmt::format("see what rank {} does; a larger timeout waits longer", asked));
  }
  trouble->add({asked});
  return ErrorText(operation, lost_problem({asked})).fact("cause", brief(cause)).help(kLostHelp);
}

std::string Link::look_around(const char* operation, const std::vector<int64_t>& ranks, const std::string& group,
                              const std::string& cause) const {
  const auto here_key = [&](int64_t r) { return fmt::format("sherd/broken/{}/{}", group, r); };
  std::vector<int64_t> missing;
  std::vector<int64_t> ended;
  bool late = !closed_by_peer(cause);
  store->set(here_key(rank), bytes(late ? kLate : kClosed));
  const auto end = std::chrono::steady_clock::now() + kGrace;
  do {
    // A rank that failed because this group broke is not the reason.
    if (const auto failure = find_failure();
        failure && failure->first != rank && !store->check({here_key(failure->first)})) {
      return ErrorText(operation, failed_problem(failure->first))
          .fact(fmt::format("rank {}", failure->first), failure->second)
          .help(failed_help(failure->first));
    }
    missing.clear();
    ended.clear();
    for (const int64_t r : ranks) {
      if (store->check({here_key(r)})) continue;
      (store->check({end_key(r)}) ? ended : missing).push_back(r);
    }
    if (missing.empty()) break;
    std::this_thread::sleep_for(kPoll);
  } while (std::chrono::steady_clock::now() < end);
  trouble->add(missing);
  const auto say = [&](const std::string& problem, const char* help) {
    return ErrorText(operation, problem).fact("group", group).fact("cause", cause).help(help).str();
  };
  // A rank that waited in vain closes its connections, and others learn of that alone.
  for (const int64_t r : ranks) {
    if (missing.empty() || late) break;
    late = store->check({here_key(r)}) && store->get(here_key(r)) == bytes(kLate);
  }
  if (!missing.empty() && !late) return say(lost_problem(missing), kLostHelp);
  if (!missing.empty()) return say(missing_problem(missing), kMissingHelp);
  if (!ended.empty()) return say(gone_problem(ended), kDifferentCallsHelp);
  return say("the transport broke", "SHERD_CHECK=1 compares what the ranks call");
}

}  // namespace sherd::detail
