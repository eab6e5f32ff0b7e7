#pragma once
#include <optional>
#include <string>

#include "sherd/checkpoint.h"

namespace sherd::detail {

/// load(), but where files are missing or damaged, on any rank, it returns nothing on all of them, and `damage` says
/// what is wrong. Still throws, on all of them, for a state that does not fit and where a storage fails on any.
std::optional<LoadResult> load_unless_damaged(StateDict& state, const std::string& path, const LoadOptions& options,
                                              std::string& damage);

}  // namespace sherd::detail
