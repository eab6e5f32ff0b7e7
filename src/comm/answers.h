#pragma once
// Ranks that check their arguments before they go on together.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/group.h"

namespace sherd::detail {

/// What `say` gives on each rank, in the order of the group: one small exchange. Throws the same c10::ValueError on
/// every rank, naming the ranks that failed and their messages, where it threw on any.
std::vector<std::string> answers_of_all(const Group& group, std::string_view operation,
                                        const std::function<std::string()>& say);

/// The two halves of it, for those who exchange by themselves. What this rank is to tell the others: what `say` gives,
/// or how it failed. Begins with one of the letters "=vx".
std::string telling_of(const std::function<std::string()>& say);
bool is_failure(const std::string& told);

/// As what the failure of a rank is thrown on all of them.
enum class FailureKind : uint8_t {
  value_error,  // c10::ValueError
  as_told,      // c10::ValueError where that, or std::invalid_argument, was thrown on each that failed; else c10::Error
};
/// What `say` gave on each rank, from what all of them told. Throws as answers_of_all does. A telling that begins with
/// another letter is no failure, and its answer what follows the letter.
std::vector<std::string> answers_in(std::vector<std::string> told, const Group& group, std::string_view operation,
                                    FailureKind kind);

/// What the first rank of a group says, and a rank that says otherwise.
struct Difference {
  int64_t rank = 0;
  std::string text;
  int64_t other_rank = 0;
  std::string other_text;
};
/// Nothing where every rank gives the same text; otherwise the same on every rank. Equal texts cost an exchange of
/// their hashes.
std::optional<Difference> find_difference(const Group& group, const std::string& text);

}  // namespace sherd::detail
