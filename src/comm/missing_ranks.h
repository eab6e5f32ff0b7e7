#pragma once
// The words for what goes wrong between ranks; every transport says it the same way.

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "comm/call_shape.h"

namespace sherd::detail {

/// "ranks 2, 5 never came".
std::string missing_problem(const std::vector<int64_t>& missing);
/// "rank 2 is gone".
std::string lost_problem(const std::vector<int64_t>& ranks);
/// "rank 2 has already ended".
std::string gone_problem(const std::vector<int64_t>& ranks);
std::string failed_problem(int64_t rank);
std::string failed_help(int64_t rank);
/// "5 s", "0.3 s".
std::string seconds_text(std::chrono::milliseconds time);
/// One fact for each different call: {"ranks 0-2", "all_reduce(sum) f32[4]"}, {"rank 3", "barrier"}.
std::vector<std::pair<std::string, std::string>> calls_by_rank(const std::vector<int64_t>& ranks,
                                                               const std::vector<CallShape>& calls);

inline constexpr const char* kMissingHelp =
    "see what these ranks do instead; SHERD_TIMEOUT=600 waits longer, SHERD_CHECK=1 compares the calls";
inline constexpr const char* kLostHelp = "look at the output of these ranks";
inline constexpr const char* kDifferentCalls = "ranks call different things";
inline constexpr const char* kDifferentCallsHelp = "every rank of a group makes the same calls in the same order";

}  // namespace sherd::detail
