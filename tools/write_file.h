#pragma once
#include <string>
#include <string_view>

#include "location.h"

namespace sherd::tools {

/// Throws std::invalid_argument "<verb>: the target exists" unless `force`.
void refuse_existing(const std::string& verb, const Location& target, const std::string& given, bool force);

/// A small file, there whole or not at all.
void write_file(const Location& target, std::string_view bytes);

}  // namespace sherd::tools
